#include "core/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tessera {
namespace {

class StepTest : public ::testing::Test {
 protected:
  static constexpr int32_t kMaxRows = 8, kPaddingSlot = 5;
  Arena arena_{"step", 1 << 12};
  Step step_ = Step::Allocate(arena_, kMaxRows, kPaddingSlot);
};

TEST_F(StepTest, SegmentsFillRowsInOrder) {
  const std::vector<int32_t> prompt = {10, 11, 12}, next = {42};
  step_.Clear();
  step_.AddSegment(2, 100, prompt.data(), 3, 1);
  step_.AddSegment(0, 7, next.data(), 1, 1);
  ASSERT_EQ(step_.num_rows, 4);
  ASSERT_EQ(step_.num_segments, 2);
  ASSERT_EQ(step_.num_logit_rows, 2);
  EXPECT_EQ(step_.logit_row[0], 2);
  EXPECT_EQ(step_.logit_row[1], 3);
  const std::vector<int32_t> ids = {10, 11, 12, 42}, slots = {2, 2, 2, 0};
  const std::vector<int64_t> positions = {100, 101, 102, 7};
  for (int row = 0; row < 4; ++row) {
    EXPECT_EQ(step_.token_id[row], ids[row]);
    EXPECT_EQ(step_.slot[row], slots[row]);
    EXPECT_EQ(step_.position[row], positions[row]);
    EXPECT_EQ(step_.valid[row], 1);
  }
  EXPECT_EQ(step_.segments[1].first_row, 3);
  EXPECT_EQ(step_.segments[1].num_rows, 1);
  EXPECT_EQ(step_.segments[0].start_pos, 100);
}

TEST_F(StepTest, LogitsAreWantedForTheLastRowsOfASegment) {
  const std::vector<int32_t> ids = {1, 2, 3, 4};
  step_.Clear();
  step_.AddSegment(0, 0, ids.data(), 4, 0);
  EXPECT_EQ(step_.num_logit_rows, 0);
  step_.AddSegment(1, 0, ids.data(), 4, 4);
  ASSERT_EQ(step_.num_logit_rows, 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(step_.logit_row[i], 4 + i);
}

// What a replay derives or appends is gone before the next, and the step is the one that was filled.
TEST_F(StepTest, ResetDerivedTakesBackPaddingAndFailures) {
  const std::vector<int32_t> ids = {1, 2, 3};
  step_.Clear();
  step_.AddSegment(0, 5, ids.data(), 3, 1);
  for (const int32_t bucket_rows : {4, 8, 3, 8}) {
    step_.ResetDerived();
    EXPECT_EQ(step_.num_rows, 3);
    EXPECT_EQ(step_.num_segments, 1);
    EXPECT_EQ(step_.num_logit_rows, 1);
    for (int row = 0; row < kMaxRows; ++row) EXPECT_EQ(step_.row_failed[row], 0);
    step_.Pad(bucket_rows, true);
    EXPECT_EQ(step_.num_rows, bucket_rows);
    std::fill_n(step_.row_failed, kMaxRows, uint8_t{1});
  }
}

TEST_F(StepTest, PaddingIsOneInvalidSegmentOnItsOwnSlot) {
  const int32_t id = 9;
  step_.Clear();
  step_.AddSegment(1, 3, &id, 1, 1);
  step_.Pad(4, true);
  EXPECT_EQ(step_.num_rows, 4);
  EXPECT_EQ(step_.num_logit_rows, 1);
  ASSERT_EQ(step_.num_segments, 2);
  EXPECT_EQ(step_.segments[1].slot, kPaddingSlot);
  EXPECT_EQ(step_.segments[1].first_row, 1);
  EXPECT_EQ(step_.segments[1].num_rows, 3);
  for (int row = 1; row < 4; ++row) {
    EXPECT_EQ(step_.valid[row], 0);
    EXPECT_EQ(step_.slot[row], kPaddingSlot);
    EXPECT_EQ(step_.position[row], row - 1);
  }
}

TEST_F(StepTest, PaddingThatIsNotRunAddsNoRows) {
  const int32_t id = 9;
  step_.Clear();
  step_.AddSegment(1, 3, &id, 1, 1);
  step_.Pad(kMaxRows, false);
  EXPECT_EQ(step_.num_rows, 1);
  EXPECT_EQ(step_.num_segments, 1);
  EXPECT_EQ(step_.valid[kMaxRows - 1], 0);
  step_.Pad(1, true);  // a full bucket needs none
  EXPECT_EQ(step_.num_segments, 1);
}

TEST_F(StepTest, ClearForgetsRowsAndFailures) {
  const int32_t id = 9;
  step_.AddSegment(1, 0, &id, 1, 1);
  step_.row_failed[0] = 1;
  step_.Clear();
  EXPECT_EQ(step_.num_rows, 0);
  EXPECT_EQ(step_.num_segments, 0);
  EXPECT_EQ(step_.num_logit_rows, 0);
  EXPECT_EQ(step_.row_failed[0], 0);
}

using StepDeathTest = StepTest;

TEST_F(StepDeathTest, TooManyRowsAbort) {
  const std::vector<int32_t> ids(9, 0);
  EXPECT_DEATH(step_.AddSegment(0, 0, ids.data(), 9, 1), "0 rows in the step, 9 more, 8 at most");
  EXPECT_DEATH(step_.AddSegment(0, 0, ids.data(), 0, 0), "0 more");
  EXPECT_DEATH(step_.AddSegment(0, 0, ids.data(), 2, 3), "3 logit rows of 2");
  EXPECT_DEATH(step_.Pad(9, false), "bucket of 9 rows");
}

}  // namespace
}  // namespace tessera
