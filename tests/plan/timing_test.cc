#include "plan/timing.h"

#include <gtest/gtest.h>

#include <string_view>

#include "core/threads.h"
#include "support/scratch_buffers.h"

namespace tessera {
namespace {

constexpr std::string_view kNames[] = {"first", "second", "never"};

void Spend(int64_t nanoseconds) noexcept {
  const int64_t end = MonotonicNanoseconds() + nanoseconds;
  while (MonotonicNanoseconds() < end) {
  }
}

// An op that takes a known time on the last worker, so that the first waits for it in the barrier.
struct SlowOp {
  int64_t nanoseconds;
  const int64_t* bytes;
  void operator()(const WorkerContext& worker) const noexcept {
    if (worker.worker_idx == worker.num_workers - 1) Spend(nanoseconds);
  }
  OpCost Cost() const noexcept { return {*bytes, 2 * *bytes}; }
};

class TimingTest : public ::testing::Test {
 protected:
  Plan MakePlan(int32_t bucket_rows) {
    PlanBuilder builder(activations_, arguments_, bucket_rows, 2);
    builder.Add(0, SlowOp{400000, &bytes_});
    builder.Add(1, SlowOp{1000000, &bytes_});
    builder.Add(0, SlowOp{600000, &bytes_});
    builder.Add(1, [](const WorkerContext&) noexcept {});
    return builder.Finish();
  }

  WorkerPool pool_{{2, false}};
  Arena activations_{"activations", 1 << 12}, arguments_{"arguments", 1 << 16};
  const testing::ScratchBuffers scratch_{2, 64};
  int64_t bytes_ = 0;
};

// Lower bounds only: how long a loaded machine keeps a thread waiting has no upper bound.
TEST_F(TimingTest, SumsOpsByRegionAndTheRestIsOutside) {
  const Plan plan = MakePlan(8);
  Timing timing(10, 3);
  for (int i = 1; i <= 3; ++i) {
    bytes_ = i;
    timing.StartStep();
    Spend(2000000);  // what a runner does before the plan
    plan.ReplayTimed(pool_, scratch_.pointers(), 4 + i, timing);
  }
  const std::vector<TimingReport> reports = MakeTimingReports(timing, kNames);
  ASSERT_EQ(reports.size(), 1u);
  const TimingReport& report = reports[0];
  EXPECT_EQ(report.bucket_rows, 8);
  EXPECT_EQ(report.num_steps, 3);
  EXPECT_EQ(report.num_rows, 5 + 6 + 7);
  EXPECT_EQ(report.num_rows_min, 5);
  EXPECT_EQ(report.num_rows_max, 7);
  ASSERT_EQ(report.regions.size(), 2u) << "a region without ops has no line";
  EXPECT_EQ(report.regions[0].name, "first");
  EXPECT_EQ(report.regions[0].num_ops, 2);
  // A worker 0 that is kept waiting reads the clock late and gives a neighbour's time to the region before, never more than there was.
  EXPECT_GE(report.regions[0].seconds_min, 4e-4);
  EXPECT_GE(report.regions[0].seconds_total + report.regions[1].seconds_total, 3 * 2e-3);
  EXPECT_GE(report.outside.seconds_min, 2e-3);
  double sum = report.outside.seconds_total;
  for (const RegionReport& region : report.regions) {
    EXPECT_LE(region.seconds_min, region.seconds_median);
    EXPECT_GE(region.seconds_total, 3 * region.seconds_min);
    sum += region.seconds_total;
  }
  EXPECT_NEAR(sum, report.step.seconds_total, 1e-9) << "regions and outside make up the wall";
  EXPECT_DOUBLE_EQ(report.outside_share(), report.outside.seconds_total / report.step.seconds_total);
  EXPECT_EQ(report.regions[0].bytes, 2 * (1 + 2 + 3)) << "costs follow the data of each step";
  EXPECT_EQ(report.regions[1].flops, 2 * (1 + 2 + 3));
  EXPECT_EQ(report.step.bytes, 3 * (1 + 2 + 3));
  EXPECT_EQ(report.step.num_ops, 4);
}

// Layers share buffers: what an op's cost follows from is gone after a later op, and nobody may touch it while it is looked at.
TEST_F(TimingTest, ACostIsThatOfItsOwnMoment) {
  int64_t shared = 0;
  struct WritingOp {
    int64_t* shared;
    int64_t value;
    void operator()(const WorkerContext& worker) const noexcept {
      if (worker.worker_idx == worker.num_workers - 1) *shared = value;
    }
    OpCost Cost() const noexcept {
      Spend(300000);
      return {*shared, 0};
    }
  };
  PlanBuilder builder(activations_, arguments_, 8, 2);
  builder.Add(0, WritingOp{&shared, 10});
  builder.Add(1, WritingOp{&shared, 200});
  builder.Add(2, WritingOp{&shared, 3000});
  const Plan plan = builder.Finish();
  Timing timing(1, 3);
  plan.ReplayTimed(pool_, scratch_.pointers(), 1, timing);
  const TimingReport report = MakeTimingReports(timing, kNames).front();
  ASSERT_EQ(report.regions.size(), 3u);
  EXPECT_EQ(report.regions[0].bytes, 10);
  EXPECT_EQ(report.regions[1].bytes, 200);
  EXPECT_EQ(report.regions[2].bytes, 3000);
  EXPECT_NEAR(report.outside.seconds_total + report.regions[0].seconds_total + report.regions[1].seconds_total +
                  report.regions[2].seconds_total,
              report.step.seconds_total, 1e-9)
      << "what looking takes counts nowhere";
}

TEST_F(TimingTest, OneReportABucket) {
  const Plan small = MakePlan(1), large = MakePlan(16);
  Timing timing(10, 3);
  large.ReplayTimed(pool_, scratch_.pointers(), 9, timing);
  small.ReplayTimed(pool_, scratch_.pointers(), 1, timing);
  large.ReplayTimed(pool_, scratch_.pointers(), 16, timing);
  const std::vector<TimingReport> reports = MakeTimingReports(timing, kNames);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].bucket_rows, 1);
  EXPECT_EQ(reports[0].num_steps, 1);
  EXPECT_EQ(reports[1].bucket_rows, 16);
  EXPECT_EQ(reports[1].num_steps, 2);
}

TEST_F(TimingTest, AFullRecorderCountsWhatItLeavesOut) {
  const Plan plan = MakePlan(8);
  Timing timing(2, 3);
  for (int i = 0; i < 5; ++i) plan.ReplayTimed(pool_, scratch_.pointers(), 1, timing);
  EXPECT_EQ(timing.num_steps(), 2);
  EXPECT_EQ(timing.num_steps_not_recorded(), 3);
  timing.Clear();
  EXPECT_EQ(timing.num_steps(), 0);
  EXPECT_TRUE(MakeTimingReports(timing, kNames).empty());
  plan.ReplayTimed(pool_, scratch_.pointers(), 1, timing);
  EXPECT_EQ(timing.num_steps(), 1);
  EXPECT_EQ(timing.regions(0)[1].num_ops, 2) << "samples of the forgotten step are gone";
}

TEST(TimingReportTest, MedianIsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  Timing timing(4, 1);
  const int64_t nanoseconds[] = {500, 100, 300, 900};
  for (int i = 0; i < 4; ++i) {
    RegionSample* samples = timing.BeginReplay();
    samples[0] = {1, nanoseconds[i], {10, 1000}};
    timing.EndWall();
    timing.Record(1, 1);
    const std::string_view name = "only";
    const TimingReport report = MakeTimingReports(timing, {&name, 1}).front();
    const double expected[] = {500e-9, 300e-9, 300e-9, 400e-9};
    EXPECT_DOUBLE_EQ(report.regions[0].seconds_median, expected[i]) << i + 1 << " steps";
    if (i == 3) {
      EXPECT_DOUBLE_EQ(report.regions[0].seconds_min, 100e-9);
      EXPECT_DOUBLE_EQ(report.regions[0].seconds_total, 1800e-9);
      EXPECT_DOUBLE_EQ(report.regions[0].bytes_per_second(), 40 / 1800e-9);
      EXPECT_DOUBLE_EQ(report.regions[0].flops_per_second(), 4000 / 1800e-9);
    }
  }
}

}  // namespace
}  // namespace tessera
