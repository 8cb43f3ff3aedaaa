#include "engine/boundaries.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/check.h"

namespace tessera {
namespace {

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

int64_t SnapshotStride(const ModelConfig& config) {
  // Ratios that have no small common multiple have no common boundary in any text the model can read: only ends are snapshotted then.
  constexpr int64_t kStrideMax = int64_t{1} << 40;
  int64_t entry_tokens = 1;
  for (const int ratio : config.compress_ratios)
    if (ratio > 0) entry_tokens = std::min(kStrideMax, std::lcm(entry_tokens, int64_t{ratio}));
  return RoundUp(kSnapshotTokens, entry_tokens);
}

int64_t NextBoundary(int64_t num_processed, const Boundaries& boundaries) {
  int64_t next = std::numeric_limits<int64_t>::max();
  const auto consider = [&](int64_t boundary) {
    if (boundary > num_processed) next = std::min(next, boundary);
  };
  consider(boundaries.num_prompt);
  if (boundaries.stride == 0) return next;
  consider((boundaries.num_prompt - 1) / boundaries.stride * boundaries.stride);
  if (boundaries.branch < boundaries.num_prompt) consider(boundaries.branch);
  const int64_t period = RoundUp(kSnapshotPeriod, boundaries.stride);
  consider((num_processed / period + 1) * period);
  return next;
}

int64_t RowsWithinReach(int64_t num_processed, int64_t num_rows, const Boundaries& boundaries) {
  TSR_CHECK(num_rows >= 1, "a chunk of {} rows", num_rows);
  if (boundaries.stride == 0) return num_rows;
  const int64_t boundary = NextBoundary(num_processed, boundaries);
  // Later boundaries inside the chunk are nearer to its end, so the first one decides.
  return boundary < num_processed + num_rows - kSnapshotReach ? boundary - num_processed : num_rows;
}

}  // namespace tessera
