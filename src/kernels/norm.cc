#include "kernels/norm.h"

#include "kernels/tier.h"

namespace tessera {

TSR_DECLARE_TIERS(
    template <class T> float SumOfSquaresRow(const T* x, int64_t cols) noexcept;
    template <class T> void RmsNormRow(const T* x, const bf16* weight, float eps, int64_t cols, T* y) noexcept;
    template <class T> void RmsNormFromFloatRow(const float* x, const bf16* weight, float eps, int64_t cols, T* y) noexcept;
    void HeadNormRow(float* x, float eps, int64_t cols) noexcept;
    void HeadNormRow(bf16* x, float eps, int64_t cols) noexcept;)

template <class T>
float SumOfSquares(const T* x, int64_t cols) noexcept { return TSR_DISPATCH(SumOfSquaresRow(x, cols)); }

template <class T>
void RmsNorm(const T* x, const bf16* weight, float eps, int64_t cols, T* y) noexcept {
  TSR_DISPATCH(RmsNormRow(x, weight, eps, cols, y));
}

template <class T>
void RmsNormFromFloat(const float* x, const bf16* weight, float eps, int64_t cols, T* y) noexcept {
  TSR_DISPATCH(RmsNormFromFloatRow(x, weight, eps, cols, y));
}

template <class T>
void HeadNorm(T* x, float eps, int64_t cols) noexcept { TSR_DISPATCH(HeadNormRow(x, eps, cols)); }

template float SumOfSquares(const bf16*, int64_t) noexcept;
template float SumOfSquares(const float*, int64_t) noexcept;
template void RmsNorm(const bf16*, const bf16*, float, int64_t, bf16*) noexcept;
template void RmsNorm(const float*, const bf16*, float, int64_t, float*) noexcept;
template void RmsNormFromFloat(const float*, const bf16*, float, int64_t, bf16*) noexcept;
template void RmsNormFromFloat(const float*, const bf16*, float, int64_t, float*) noexcept;
template void HeadNorm(bf16*, float, int64_t) noexcept;
template void HeadNorm(float*, float, int64_t) noexcept;

}  // namespace tessera
