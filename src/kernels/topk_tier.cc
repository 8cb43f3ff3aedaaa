#include "kernels/topk.h"

#include "kernels/vec.h"

namespace tessera::TSR_TIER {
namespace {

// 64 scores are compared into one word, so that a stretch without a candidate costs a compare a register and one branch.
constexpr int kBlock = 64;

inline uint64_t Candidates(const float* scores, Vec threshold) {
  uint64_t mask = 0;
  for (int i = 0; i < kBlock; i += kLanes) mask |= uint64_t{MaskGreaterEqual(Load(scores + i), threshold)} << i;
  return mask;
}

}  // namespace

int64_t AppendFrom(const float* scores, int64_t num_scores, float threshold, int32_t first_index, ScoredIndex* out, int64_t room,
                   int64_t* num_added) noexcept {
  int64_t added = 0, i = 0;
  const Vec limit = Set1(threshold);
  for (; i + kBlock <= num_scores && added + kBlock <= room; i += kBlock) {
    for (uint64_t mask = Candidates(scores + i, limit); mask != 0; mask &= mask - 1) {
      const int64_t at = i + __builtin_ctzll(mask);
      out[added++] = {scores[at], first_index + static_cast<int32_t>(at)};
    }
  }
  // The tail. Where it is longer than a block, room was short: the caller makes some and comes again.
  if (num_scores - i < kBlock) {
    for (; i < num_scores && added < room; ++i)
      if (scores[i] >= threshold) out[added++] = {scores[i], first_index + static_cast<int32_t>(i)};
  }
  *num_added = added;
  return i;
}

}  // namespace tessera::TSR_TIER
