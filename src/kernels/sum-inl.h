// Sums over a row in an order that depends on the row's length alone: chunks of kSumChunk columns, in each chunk four registers per sum
// that take turns, combined as (0 + 1) + (2 + 3), then across lanes, then added to the total in row order. Chunks keep the error of a
// long row small (the scalar tier has four running sums and would otherwise carry a quarter of the row in each).
#pragma once

#include "kernels/vec.h"

namespace tessera::TSR_TIER {

constexpr int64_t kSumChunk = 1024;

// totals[s] = sum over the row of what add(i, part, sums) adds to sums[s], s < kSums.
template <int kSums, class Add>
inline void SumRow(int64_t cols, Add&& add, float* totals) {
  for (int s = 0; s < kSums; ++s) totals[s] = 0.0f;
  for (int64_t begin = 0; begin < cols; begin += kSumChunk) {
    const int64_t end = begin + kSumChunk < cols ? begin + kSumChunk : cols;
    Vec sums[4][kSums];
    for (auto& turn : sums)
      for (Vec& sum : turn) sum = Zero();
    int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      add(i, Full{}, sums[0]);
      add(i + kLanes, Full{}, sums[1]);
      add(i + 2 * kLanes, Full{}, sums[2]);
      add(i + 3 * kLanes, Full{}, sums[3]);
    }
    ForEachVec(end - i, [&](int64_t rest, auto part) { add(i + rest, part, sums[0]); });
    for (int s = 0; s < kSums; ++s) totals[s] += ReduceAdd((sums[0][s] + sums[1][s]) + (sums[2][s] + sums[3][s]));
  }
}

}  // namespace tessera::TSR_TIER
