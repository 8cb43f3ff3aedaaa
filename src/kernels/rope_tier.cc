#include "kernels/vec.h"

namespace tessera::TSR_TIER {

// Products and differences are rounded one by one, as in the reference, and never fused: all tiers give equal bits.
template <class T>
void RotatePairs(T* x, const float* cos, const float* sin, int64_t pairs, bool inverse) noexcept {
  const Vec direction = Set1(inverse ? -1.0f : 1.0f);
  ForEachVec(pairs, [&](int64_t i, auto part) {
    const VecPair v = LoadEvenOdd(x + 2 * i, part);
    const Vec c = Load(cos + i, part);
    const Vec s = Load(sin + i, part) * direction;
    StoreEvenOdd({v.first * c - v.second * s, v.first * s + v.second * c}, x + 2 * i, part);
  });
}

template void RotatePairs(bf16*, const float*, const float*, int64_t, bool) noexcept;
template void RotatePairs(float*, const float*, const float*, int64_t, bool) noexcept;

}  // namespace tessera::TSR_TIER
