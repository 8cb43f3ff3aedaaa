#include "plan/plan_set.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/check.h"

namespace tessera {
namespace {

constexpr size_t kActivationBytes = 1 << 16;
void NoWarmRun(int) {}

TEST(PowerOfTwoBucketsTest, EndWithTheRowsAskedAndThePrefillBucket) {
  EXPECT_EQ(PowerOfTwoBuckets(8, 512), (std::vector<int32_t>{1, 2, 4, 8, 512}));
  EXPECT_EQ(PowerOfTwoBuckets(6, 64), (std::vector<int32_t>{1, 2, 4, 6, 64}));
  EXPECT_EQ(PowerOfTwoBuckets(8, 4), (std::vector<int32_t>{1, 2, 4, 8}));
  EXPECT_EQ(PowerOfTwoBuckets(1, 1), (std::vector<int32_t>{1}));
}

class PlanSetTest : public ::testing::Test {
 protected:
  void Run(int bucket_idx, int32_t num_rows) {
    step_.Clear();
    std::vector<int32_t> ids(static_cast<size_t>(num_rows));
    step_.AddSegment(0, 0, ids.data(), num_rows, 0);
    step_.bucket_idx = bucket_idx;
    plans_.Replay(step_);
  }
  // An op that counts its replays in the activations; `place` is where.
  static PlanSet::Build Counting(int64_t*& place) {
    return [&place](PlanBuilder& builder) {
      int64_t* counter = place = builder.activations().Allocate<int64_t>(builder.bucket_rows());
      builder.Add(3, [counter](const WorkerContext& worker) noexcept {
        if (worker.worker_idx == 0) ++*counter;
      });
    };
  }

  WorkerPool pool_{{1, false}};  // no threads: tests of what aborts fork
  PlanSet plans_{{1, 4, 16}, pool_};
  Arena arena_{"step", 1 << 12};
  Step step_ = Step::Allocate(arena_, 16, 1);
};

TEST_F(PlanSetTest, LargestIsBuiltFirstAndSmallerOnesAliasItsPrefix) {
  std::vector<int32_t> order;
  std::vector<int64_t*> buffers;
  plans_.Capture(
      kActivationBytes,
      [&](PlanBuilder& builder) {
        order.push_back(builder.bucket_rows());
        buffers.push_back(builder.activations().Allocate<int64_t>(builder.bucket_rows() * 8));
        builder.RequireScratch(static_cast<size_t>(builder.bucket_rows()) * 10);
      },
      NoWarmRun);
  EXPECT_EQ(order, (std::vector<int32_t>{16, 4, 1}));
  EXPECT_EQ(buffers[0], buffers[1]);
  EXPECT_EQ(buffers[0], buffers[2]);
  EXPECT_EQ(plans_.activation_bytes(), 16u * 8 * sizeof(int64_t));
  EXPECT_EQ(plans_.scratch_bytes(), 160u);
}

TEST_F(PlanSetTest, PicksTheSmallestBucketThatHoldsTheRows) {
  const int expected[] = {-1, 0, 1, 1, 1, 2, 2};
  for (int32_t rows = 1; rows <= 6; ++rows) EXPECT_EQ(plans_.BucketFor(rows), expected[rows]) << rows;
  EXPECT_EQ(plans_.BucketFor(16), 2);
  EXPECT_DEATH(plans_.BucketFor(17), "17 rows, the largest bucket has 16");
}

TEST_F(PlanSetTest, ArenasAreSealed) {
  plans_.Capture(kActivationBytes, [](PlanBuilder&) {}, NoWarmRun);
  EXPECT_TRUE(plans_.activations().sealed());
  EXPECT_DEATH(plans_.activations().AllocateBytes(1), "sealed");
}

TEST_F(PlanSetTest, CaptureWarmsEveryBucketOnceTheLargestFirst) {
  std::vector<int> warmed;
  int64_t* counter = nullptr;
  plans_.Capture(kActivationBytes, Counting(counter), [&](int bucket_idx) {
    warmed.push_back(bucket_idx);
    Run(bucket_idx, 1);
  });
  EXPECT_EQ(warmed, (std::vector<int>{2, 1, 0}));
  EXPECT_EQ(*counter, 3);
}

TEST_F(PlanSetTest, CaptureAndDestroyMayBeRepeated) {
  plans_.Destroy();
  int64_t* counter = nullptr;
  for (int i = 0; i < 3; ++i) {
    plans_.Capture(kActivationBytes, Counting(counter), NoWarmRun);
    if (i == 1) plans_.Capture(kActivationBytes, Counting(counter), NoWarmRun);
    EXPECT_TRUE(plans_.captured());
    for (int bucket_idx = 0; bucket_idx < 3; ++bucket_idx) Run(bucket_idx, 1);
    EXPECT_EQ(*counter, 3) << "the arena of each capture is new";
    plans_.Destroy();
    plans_.Destroy();
    EXPECT_FALSE(plans_.captured());
    EXPECT_EQ(plans_.activation_bytes(), 0u);
  }
}

TEST_F(PlanSetTest, AFailedCaptureLeavesNothingCaptured) {
  int64_t* counter = nullptr;
  plans_.Capture(kActivationBytes, Counting(counter), NoWarmRun);
  EXPECT_THROW(plans_.Capture(kActivationBytes, [](PlanBuilder&) { Fail("refused"); }, NoWarmRun), Error);
  EXPECT_FALSE(plans_.captured());
}

TEST_F(PlanSetTest, ReplayRunsWhatTheStepSaysAndNothingElse) {
  EXPECT_DEATH(Run(0, 1), "destroyed or never captured");
  int64_t* counter = nullptr;
  plans_.Capture(kActivationBytes, Counting(counter), NoWarmRun);
  EXPECT_DEATH(Run(1, 5), "5 rows in a bucket of 4");
  EXPECT_DEATH(Run(3, 1), "bucket 3 of 3");
  EXPECT_DEATH(Run(-1, 1), "bucket -1 of 3");
  plans_.Destroy();
  EXPECT_DEATH(Run(0, 1), "destroyed or never captured");
}

TEST_F(PlanSetTest, TimingIsFilledWhileItIsSet) {
  int64_t* counter = nullptr;
  plans_.Capture(kActivationBytes, Counting(counter), NoWarmRun);
  Timing timing(4, 4);
  plans_.SetTiming(&timing);
  Run(1, 3);
  Run(2, 9);
  plans_.SetTiming(nullptr);
  Run(2, 9);
  ASSERT_EQ(timing.num_steps(), 2);
  EXPECT_EQ(timing.step(0).bucket_rows, 4);
  EXPECT_EQ(timing.step(0).num_rows, 3);
  EXPECT_EQ(timing.step(1).bucket_rows, 16);
  EXPECT_EQ(timing.step(1).num_rows, 9);
  EXPECT_EQ(timing.regions(1)[3].num_ops, 1);
  Timing few(4, 3);
  plans_.SetTiming(&few);
  EXPECT_DEATH(Run(1, 3), "plans of 4 regions, timing of 3");
}

}  // namespace
}  // namespace tessera
