#include "kernels/vec.h"

namespace tessera::TSR_TIER {
namespace {

// ln(1 + t) for 0 <= t <= 1, relative error below 2 ulp. ln(1 + t) = 2 atanh(s) with s = t / (2 + t) <= 1/3, and
// 2 atanh(s) = 2s (1 + s^2/3 + s^4/5 + ...); what follows s^16/17 is below (1/9)^9 / 19 * 9/8 < 2^-32.
Vec Log1p(Vec t) {
  const Vec s = t / (t + Set1(2.0f));
  const Vec s2 = s * s;
  Vec p = Set1(1.0f / 17);
  p = MulAdd(p, s2, Set1(1.0f / 15));
  p = MulAdd(p, s2, Set1(1.0f / 13));
  p = MulAdd(p, s2, Set1(1.0f / 11));
  p = MulAdd(p, s2, Set1(1.0f / 9));
  p = MulAdd(p, s2, Set1(1.0f / 7));
  p = MulAdd(p, s2, Set1(1.0f / 5));
  p = MulAdd(p, s2, Set1(1.0f / 3));
  const Vec twice = s + s;
  return MulAdd(p * s2, twice, twice);
}

}  // namespace

template <class T>
void SwiGluRow(const T* g, const T* u, int64_t cols, float limit, float weight, T* h) noexcept {
  const Vec high = Set1(limit), low = Set1(-limit), one = Set1(1.0f), w = Set1(weight);
  ForEachVec(cols, [&](int64_t i, auto part) {
    // The bound stands first, so that a NaN passes Min and Max instead of turning into the bound.
    const Vec gate = Min(high, Load(g + i, part));
    const Vec up = Max(low, Min(high, Load(u + i, part)));
    const Vec silu = gate / (one + Exp(Zero() - gate));
    Store(w * (silu * up), h + i, part);
  });
}

void SqrtSoftplusRow(const float* x, int64_t cols, float* y) noexcept {
  // ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|) for both signs; from x = 20 on the second term is below half an ulp of x.
  ForEachVec(cols, [&](int64_t i, auto part) {
    const Vec v = Load(x + i, part);
    Store(Sqrt(Max(Zero(), v) + Log1p(Exp(Zero() - Abs(v)))), y + i, part);
  });
}

template void SwiGluRow(const bf16*, const bf16*, int64_t, float, float, bf16*) noexcept;
template void SwiGluRow(const float*, const float*, int64_t, float, float, float*) noexcept;

}  // namespace tessera::TSR_TIER
