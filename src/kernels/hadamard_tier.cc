#include <utility>

#include "kernels/vec.h"

namespace tessera::TSR_TIER {
namespace {

constexpr int64_t kSizeMax = 1024;

}  // namespace

// Constant geometry: each stage adds and subtracts neighbours (2i, 2i + 1) and writes sums to the lower half, differences to the upper.
// That combines the lowest index bit and rotates it to the top, so after log2(n) stages every bit has been combined, lowest first, and
// stands in its place again. All stages are the same loop, and each output is the same tree of sums on every tier.
template <class T>
void HadamardRow(T* x, int64_t n) noexcept {
  float first[kSizeMax], second[kSizeMax];
  float* from = first;
  float* to = second;
  ForEachVec(n, [&](int64_t i, auto part) { Store(Load(x + i, part), from + i, part); });
  for (int64_t stage = 1; stage < n; stage *= 2) {
    ForEachVec(n / 2, [&](int64_t i, auto part) {
      const VecPair v = LoadEvenOdd(from + 2 * i, part);
      Store(v.first + v.second, to + i, part);
      Store(v.first - v.second, to + n / 2 + i, part);
    });
    std::swap(from, to);
  }
  const Vec scale = Set1(static_cast<float>(1.0 / std::sqrt(static_cast<double>(n))));
  ForEachVec(n, [&](int64_t i, auto part) { Store(Load(from + i, part) * scale, x + i, part); });
}

template void HadamardRow(bf16*, int64_t) noexcept;
template void HadamardRow(float*, int64_t) noexcept;

}  // namespace tessera::TSR_TIER
