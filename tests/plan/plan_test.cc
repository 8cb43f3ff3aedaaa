#include "plan/plan.h"

#include <gtest/gtest.h>

#include <numeric>

#include "support/scratch_buffers.h"

namespace tessera {
namespace {

// Every op sees what all workers of the op before it wrote: a barrier stands between ops.
TEST(PlanTest, OpsRunInOrderOnEveryWorker) {
  for (const int workers : {1, 2, 3, 7}) {
    WorkerPool pool({workers, false});
    Arena activations("activations", 1 << 20), arguments("arguments", 1 << 20);
    PlanBuilder builder(activations, arguments, 8, workers);
    const View<int64_t> a = activations.AllocateView<int64_t>(1, 1000);
    const View<int64_t> b = activations.AllocateView<int64_t>(1, 1000);
    int64_t start = 0;
    const int64_t* start_value = &start;
    builder.Add(0, [=](const WorkerContext& worker) noexcept {
      const Range part = worker.PartOf(a.cols);
      for (int64_t i = part.begin; i < part.end; ++i) a.data[i] = *start_value + i;
    });
    builder.Add(0, [=](const WorkerContext& worker) noexcept {
      const Range part = worker.PartOf(b.cols);
      for (int64_t i = part.begin; i < part.end; ++i) b.data[i] = a.data[b.cols - 1 - i];  // another worker's part
    });
    const Plan plan = builder.Finish();
    EXPECT_EQ(plan.num_ops(), 2u);
    const testing::ScratchBuffers scratch(workers, 64);
    for (start = 0; start < 200; ++start) {
      plan.Replay(pool, scratch.pointers());
      for (int64_t i = 0; i < b.cols; ++i) ASSERT_EQ(b.data[i], start + b.cols - 1 - i) << workers << " workers, replay " << start;
    }
  }
}

TEST(PlanTest, KeepCopiesWhatAnOpPointsTo) {
  Arena activations("activations", 1 << 12), arguments("arguments", 1 << 12);
  PlanBuilder builder(activations, arguments, 1, 1);
  std::vector<int> values = {3, 1, 4};
  const std::span<const int> kept = builder.Keep(values);
  values.assign(3, 0);
  EXPECT_EQ(std::vector<int>(kept.begin(), kept.end()), (std::vector<int>{3, 1, 4}));
  EXPECT_TRUE(builder.Keep(std::vector<int>{}).empty());
}

TEST(PlanTest, RequiresTheLargestScratchAsked) {
  Arena activations("activations", 1 << 12), arguments("arguments", 1 << 12);
  PlanBuilder builder(activations, arguments, 1, 1);
  builder.RequireScratch(100);
  builder.RequireScratch(7);
  EXPECT_EQ(builder.Finish().scratch_bytes(), 100u);
}

}  // namespace
}  // namespace tessera
