#include "kernels/sum-inl.h"

namespace tessera::TSR_TIER {
namespace {

template <class T>
float SquaresOf(const T* x, int64_t cols) {
  float total = 0;
  SumRow<1>(cols, [&](int64_t i, auto part, Vec* sum) {
    const Vec v = Load(x + i, part);
    sum[0] = MulAdd(v, v, sum[0]);
  }, &total);
  return total;
}

// Correctly rounded steps instead of an rsqrt estimate: eps may be 1e-20, and the bits must not depend on the CPU.
float ReciprocalRoot(float x) { return 1.0f / std::sqrt(x); }

template <class In, class T>
void NormRow(const In* x, const bf16* weight, float eps, int64_t cols, T* y) {
  const Vec r = Set1(ReciprocalRoot(SquaresOf(x, cols) / static_cast<float>(cols) + eps));
  ForEachVec(cols, [&](int64_t i, auto part) { Store(Load(weight + i, part) * (Load(x + i, part) * r), y + i, part); });
}

float RoundedBf16(float x) { return ToFloat(ToBf16(x)); }

}  // namespace

template <class T>
float SumOfSquaresRow(const T* x, int64_t cols) noexcept { return SquaresOf(x, cols); }

template <class T>
void RmsNormRow(const T* x, const bf16* weight, float eps, int64_t cols, T* y) noexcept { NormRow(x, weight, eps, cols, y); }

template <class T>
void RmsNormFromFloatRow(const float* x, const bf16* weight, float eps, int64_t cols, T* y) noexcept { NormRow(x, weight, eps, cols, y); }

void HeadNormRow(float* x, float eps, int64_t cols) noexcept {
  const Vec r = Set1(ReciprocalRoot(SquaresOf(x, cols) / static_cast<float>(cols) + eps));
  ForEachVec(cols, [&](int64_t i, auto part) { Store(Load(x + i, part) * r, x + i, part); });
}

void HeadNormRow(bf16* x, float eps, int64_t cols) noexcept {
  float total = 0;
  SumRow<1>(cols, [&](int64_t i, auto part, Vec* sum) {
    const Vec v = Load(x + i, part);
    sum[0] = sum[0] + RoundToBf16(v * v);
  }, &total);
  const float mean = RoundedBf16(total / static_cast<float>(cols));
  const Vec r = Set1(RoundedBf16(ReciprocalRoot(RoundedBf16(mean + eps))));
  ForEachVec(cols, [&](int64_t i, auto part) { Store(Load(x + i, part) * r, x + i, part); });
}

template float SumOfSquaresRow(const bf16*, int64_t) noexcept;
template float SumOfSquaresRow(const float*, int64_t) noexcept;
template void RmsNormRow(const bf16*, const bf16*, float, int64_t, bf16*) noexcept;
template void RmsNormRow(const float*, const bf16*, float, int64_t, float*) noexcept;
template void RmsNormFromFloatRow(const float*, const bf16*, float, int64_t, bf16*) noexcept;
template void RmsNormFromFloatRow(const float*, const bf16*, float, int64_t, float*) noexcept;

}  // namespace tessera::TSR_TIER
