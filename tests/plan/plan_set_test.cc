#include "plan/plan_set.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(PowerOfTwoBucketsTest, EndWithTheRowsAskedAndThePrefillBucket) {
  EXPECT_EQ(PowerOfTwoBuckets(8, 512), (std::vector<int32_t>{1, 2, 4, 8, 512}));
  EXPECT_EQ(PowerOfTwoBuckets(6, 64), (std::vector<int32_t>{1, 2, 4, 6, 64}));
  EXPECT_EQ(PowerOfTwoBuckets(8, 4), (std::vector<int32_t>{1, 2, 4, 8}));
  EXPECT_EQ(PowerOfTwoBuckets(1, 1), (std::vector<int32_t>{1}));
}

struct Built {
  std::vector<int32_t> order;
  std::vector<int64_t*> buffers;
};

PlanSet::Options SmallOptions() {
  PlanSet::Options options;
  options.buckets = {1, 4, 16};
  options.activation_bytes_max = 1 << 16;
  options.argument_bytes_max = 1 << 16;
  return options;
}

TEST(PlanSetTest, LargestIsBuiltFirstAndSmallerOnesAliasItsPrefix) {
  WorkerPool pool({2, false});
  Built built;
  const PlanSet plans(SmallOptions(), pool, [&](PlanBuilder& builder) {
    built.order.push_back(builder.bucket_rows());
    built.buffers.push_back(builder.activations().Allocate<int64_t>(builder.bucket_rows() * 8));
    builder.RequireScratch(static_cast<size_t>(builder.bucket_rows()) * 10);
  });
  EXPECT_EQ(built.order, (std::vector<int32_t>{16, 4, 1}));
  EXPECT_EQ(built.buffers[0], built.buffers[1]);
  EXPECT_EQ(built.buffers[0], built.buffers[2]);
  EXPECT_EQ(plans.activation_bytes(), 16u * 8 * sizeof(int64_t));
  EXPECT_EQ(plans.scratch_bytes(), 160u);
}

TEST(PlanSetTest, PicksTheSmallestBucketThatHoldsTheRows) {
  WorkerPool pool({1, false});
  PlanSet plans(SmallOptions(), pool, [](PlanBuilder&) {});
  const int expected[] = {-1, 0, 1, 1, 1, 2, 2};
  for (int32_t rows = 1; rows <= 6; ++rows) EXPECT_EQ(plans.BucketFor(rows), expected[rows]) << rows;
  EXPECT_EQ(plans.BucketFor(16), 2);
  EXPECT_DEATH(plans.BucketFor(17), "17 rows");
}

TEST(PlanSetTest, ArenasAreSealed) {
  WorkerPool pool({1, false});
  PlanSet plans(SmallOptions(), pool, [](PlanBuilder&) {});
  EXPECT_TRUE(plans.activations().sealed());
  EXPECT_DEATH(plans.activations().AllocateBytes(1), "sealed");
}

TEST(PlanSetTest, MayBeBuiltAndDestroyedRepeatedly) {
  WorkerPool pool({2, false});
  for (int i = 0; i < 3; ++i) {
    int64_t* counter = nullptr;
    PlanSet plans(SmallOptions(), pool, [&](PlanBuilder& builder) {
      int64_t* place = builder.activations().Allocate<int64_t>(1);
      counter = place;
      builder.Add(0, [place](const WorkerContext& worker) noexcept {
        if (worker.worker_idx == 0) ++*place;
      });
    });
    *counter = 0;
    for (int bucket = 0; bucket < 3; ++bucket) plans.Replay(bucket);
    EXPECT_EQ(*counter, 3);
  }
}

}  // namespace
}  // namespace tessera
