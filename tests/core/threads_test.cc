#include "core/threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "support/sizes.h"

namespace tessera {
namespace {

class WorkerPoolTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, WorkerPoolTest, ::testing::Values(1, 2, 3, 7));

TEST_P(WorkerPoolTest, EveryWorkerRunsOnceAndRunWaitsForAll) {
  WorkerPool pool({.num_workers = GetParam()});
  ASSERT_EQ(pool.num_workers(), GetParam());
  std::vector<int> calls(GetParam(), 0);
  for (int round = 1; round <= 100; ++round) {
    pool.Run([&](int worker_idx) { ++calls[worker_idx]; });
    for (const int count : calls) ASSERT_EQ(count, round);
  }
}

TEST_P(WorkerPoolTest, TheCallerIsWorkerZero) {
  WorkerPool pool({.num_workers = GetParam()});
  std::vector<std::thread::id> ids(GetParam());
  pool.Run([&](int worker_idx) { ids[worker_idx] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end()) << "two workers share a thread";
}

// In each phase every worker adds its share to its own cell and reads all cells after the barrier: a barrier that lets one worker through
// early is seen as a cell that lags, one that lets a worker lap another as a cell that is ahead.
TEST_P(WorkerPoolTest, BarrierSeparatesPhases) {
  const int num_workers = GetParam();
  const int num_phases = kReducedSizes || num_workers > NumUsableCores() ? 1000 : 10000;
  WorkerPool pool({.num_workers = num_workers});
  std::vector<int> cells(num_workers, 0);
  std::vector<int64_t> wrong(num_workers, 0);
  pool.Run([&](int worker_idx) {
    for (int phase = 1; phase <= num_phases; ++phase) {
      cells[worker_idx] = phase;
      pool.Barrier();
      for (const int cell : cells) wrong[worker_idx] += cell != phase;
      pool.Barrier();
    }
  });
  for (const int64_t count : wrong) EXPECT_EQ(count, 0);
}

TEST_P(WorkerPoolTest, ManyShortRuns) {
  const int num_runs = kReducedSizes || GetParam() > NumUsableCores() ? 1000 : 10000;
  WorkerPool pool({.num_workers = GetParam(), .pin = false});
  std::vector<int64_t> sums(GetParam(), 0);
  for (int64_t run = 0; run < num_runs; ++run) pool.Run([&](int worker_idx) { sums[worker_idx] += run; });
  for (const int64_t sum : sums) EXPECT_EQ(sum, int64_t{num_runs} * (num_runs - 1) / 2);
}

double ProcessCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// While the caller blocks, the workers are parked: the whole process takes no more than the spinning before they park (microseconds each);
// a worker that kept spinning would take all of the 200 ms. The bound of a quarter stands between the two.
TEST(WorkerPoolIdleTest, AParkedPoolUsesNoCpu) {
  WorkerPool pool({.num_workers = 3, .pin = false});
  pool.Run([](int) {});
  const double before = ProcessCpuSeconds();
  timespec pause = {0, 200'000'000};
  ASSERT_EQ(pselect(0, nullptr, nullptr, nullptr, &pause, nullptr), 0);
  EXPECT_LT(ProcessCpuSeconds() - before, 0.05);
}

cpu_set_t Affinity() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  return mask;
}

TEST(WorkerPoolPinTest, ThePoolGivesTheCallerItsCoresBack) {
  const cpu_set_t before = Affinity();
  const int cores = NumUsableCores();
  {
    WorkerPool pool({.num_workers = std::min(2, cores)});
    EXPECT_EQ(NumUsableCores(), cores) << "a pinned caller must not look like a host of one core";
    if (cores >= 2) {
      std::vector<int> num_cpus(2, 0);
      pool.Run([&](int worker_idx) {
        const cpu_set_t mask = Affinity();
        num_cpus[worker_idx] = CPU_COUNT(&mask);
      });
      EXPECT_EQ(num_cpus, (std::vector<int>{1, 1}));
    }
  }
  const cpu_set_t after = Affinity();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(NumUsableCoresTest, IsAtLeastOneAndAtMostTheAffinityMask) {
  const cpu_set_t mask = Affinity();
  EXPECT_GE(NumUsableCores(), 1);
  EXPECT_LE(NumUsableCores(), CPU_COUNT(&mask));
}

TEST(PartOfTest, PartsTileTheRangeInOrder) {
  for (const int64_t count : {0, 1, 2, 7, 63, 64, 65, 1000, 4097})
    for (const int num_workers : {1, 2, 3, 7, 16})
      for (const int64_t grain : {1, 3, 16, 64}) {
        int64_t next = 0;
        for (int worker_idx = 0; worker_idx < num_workers; ++worker_idx) {
          const Range part = PartOf(count, worker_idx, num_workers, grain);
          ASSERT_EQ(part.begin, next);
          ASSERT_LE(part.begin, part.end);
          if (part.begin < part.end) ASSERT_EQ(part.begin % grain, 0);
          next = part.end;
        }
        ASSERT_EQ(next, count) << num_workers << " workers, grain " << grain;
      }
}

TEST(PartOfTest, PartsDifferByAtMostOneGrain) {
  for (int worker_idx = 0; worker_idx < 7; ++worker_idx) {
    const Range part = PartOf(7 * 5 * 16 + 48, worker_idx, 7, 16);
    EXPECT_GE(part.end - part.begin, 5 * 16);
    EXPECT_LE(part.end - part.begin, 6 * 16);
  }
}

}  // namespace
}  // namespace tessera
