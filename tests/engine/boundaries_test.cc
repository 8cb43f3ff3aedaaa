#include "engine/boundaries.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace tessera {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

ModelConfig WithRatios(std::vector<int> ratios) {
  ModelConfig config;
  config.compress_ratios = std::move(ratios);
  return config;
}

TEST(BoundariesTest, TheStrideIsAWholeNumberOfEntriesOfEveryLayer) {
  EXPECT_EQ(SnapshotStride(WithRatios({})), 128);
  EXPECT_EQ(SnapshotStride(WithRatios({0, 0, 4, 128, 4})), 128);  // V4
  EXPECT_EQ(SnapshotStride(WithRatios({0, 2, 1, 1})), 128);       // V4.1
  EXPECT_EQ(SnapshotStride(WithRatios({4, 6})), 132);
  EXPECT_EQ(SnapshotStride(WithRatios({128, 3})), 384);
  EXPECT_EQ(SnapshotStride(WithRatios({251, 253, 255, 256, 247, 241, 239})), int64_t{1} << 40);
}

// All boundaries up to `end`, from the definition.
std::set<int64_t> Listed(const Boundaries& boundaries, int64_t end) {
  std::set<int64_t> list = {boundaries.num_prompt};
  if (boundaries.stride == 0) return list;
  const int64_t period = (4096 + boundaries.stride - 1) / boundaries.stride * boundaries.stride;
  int64_t last = 0;
  for (int64_t n = boundaries.stride; n < end; n += boundaries.stride) {
    if (n < boundaries.num_prompt) last = n;
    if (n % period == 0) list.insert(n);
  }
  if (last > 0) list.insert(last);
  if (boundaries.branch > 0) list.insert(boundaries.branch);
  return list;
}

TEST(BoundariesTest, NextBoundaryWalksTheListedOnes) {
  for (const int64_t stride : {int64_t{0}, int64_t{128}, int64_t{132}, int64_t{384}})
    for (const int64_t num_prompt : {1, 127, 128, 129, 1000, 4095, 4096, 4097, 4225, 9000})
      for (const int64_t multiple : {0, 1, 5}) {
        const int64_t branch = multiple * stride < num_prompt ? multiple * stride : 0;
        const Boundaries boundaries{num_prompt, stride, branch};
        constexpr int64_t kEnd = 20000;
        const std::set<int64_t> expected = Listed(boundaries, kEnd);
        for (int64_t n = 0; n < kEnd - 5000; n += 1 + n % 3) {
          const auto next = expected.upper_bound(n);
          ASSERT_EQ(NextBoundary(n, boundaries), next == expected.end() ? kNever : *next)
              << n << " of " << num_prompt << " stride " << stride << " branch " << branch;
        }
      }
}

TEST(BoundariesTest, EveryBoundaryOfAChunkIsWithinReachOfItsEndAndNoRowIsLost) {
  for (const int64_t stride : {int64_t{128}, int64_t{384}})
    for (const int64_t num_prompt : {1, 130, 1000, 4200, 9001})
      for (const int64_t budget : {1, 100, 512, 4096}) {
        const Boundaries boundaries{num_prompt, stride, num_prompt > 2 * stride ? stride : 0};
        for (int64_t n = 0; n < num_prompt;) {
          const int64_t rows = RowsWithinReach(n, std::min(budget, num_prompt - n), boundaries);
          ASSERT_GE(rows, 1);
          ASSERT_LE(rows, budget);
          for (int64_t b = NextBoundary(n, boundaries); b <= n + rows; b = NextBoundary(b, boundaries))
            ASSERT_LE(n + rows - b, kSnapshotReach) << "chunk " << n << " + " << rows << ", boundary " << b;
          n += rows;
        }
      }
}

TEST(BoundariesTest, WithTheUsualStrideAPromptIsCutOnlyWhereAChunkEndsAnyway) {
  // 1,000 tokens in chunks of 512: the boundary at 896 lies 104 tokens before the end.
  EXPECT_EQ(RowsWithinReach(512, 488, {1000, 128, 0}), 488);
  EXPECT_EQ(RowsWithinReach(0, 200, {200, 128, 0}), 200);
  // A branch far from the end of the chunk does cut it.
  EXPECT_EQ(RowsWithinReach(0, 512, {1000, 128, 256}), 256);
  EXPECT_EQ(RowsWithinReach(0, 512, {1000, 0, 0}), 512);
}

}  // namespace
}  // namespace tessera
