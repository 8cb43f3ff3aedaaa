// Where the time of replayed steps goes, by region: a recorder that is allocated once for a number of steps and filled by replays, and the
// report made of it afterwards. Without a recorder a replay reads no clock. With one, worker 0 reads the clock after the barrier of each
// op, so an op's time includes waiting for its slowest worker, and one more barrier comes before the first op, so that waking parked
// workers counts as outside.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace tessera {

// Nanoseconds on a monotonic clock.
int64_t MonotonicNanoseconds() noexcept;

// One region within one step: the sum over its ops.
struct RegionSample {
  int32_t num_ops = 0;
  int64_t nanoseconds = 0;
  OpCost cost;
};

struct StepSample {
  int32_t bucket_rows = 0;
  int32_t num_rows = 0;          // that were run
  int64_t wall_nanoseconds = 0;  // from StartStep to the end of the last op, padding and choice of the bucket included
};

class Timing {
 public:
  // Room for `max_steps` steps of plans with regions 0 ... num_regions - 1; later steps are counted and not recorded.
  Timing(int32_t max_steps, int32_t num_regions);

  // The wall clock of the next step starts here. Calls after the first have no effect until a step is recorded, so whoever prepares a step
  // may start before the runner does.
  void StartStep() noexcept;

  // For replays: the regions [num_regions] of the step that runs, zeroed; then its wall time ends and it is recorded. Null when the
  // recorder is full; the step is counted.
  RegionSample* BeginReplay() noexcept;
  void Skip(int64_t nanoseconds) noexcept { start_ += nanoseconds; }  // time that recording itself took
  void EndWall() noexcept;
  void Record(int32_t bucket_rows, int32_t num_rows) noexcept;

  // Forgets the recorded steps.
  void Clear() noexcept;

  int32_t num_regions() const { return num_regions_; }
  int32_t num_steps() const { return num_steps_; }
  int64_t num_steps_not_recorded() const { return num_not_recorded_; }
  const StepSample& step(int32_t step_idx) const { return steps_[static_cast<size_t>(step_idx)]; }
  std::span<const RegionSample> regions(int32_t step_idx) const {
    return {regions_.data() + static_cast<size_t>(step_idx) * static_cast<size_t>(num_regions_), static_cast<size_t>(num_regions_)};
  }

 private:
  int32_t num_regions_;
  std::vector<StepSample> steps_;
  std::vector<RegionSample> regions_;  // [max_steps, num_regions]
  int32_t num_steps_ = 0;
  int64_t num_not_recorded_ = 0;
  int64_t start_ = 0;  // 0: not started
  int64_t wall_ = 0;
};

struct RegionReport {
  std::string_view name;
  int64_t num_ops = 0;  // a step
  double seconds_min = 0, seconds_median = 0, seconds_total = 0;
  int64_t bytes = 0;  // over all steps: what had to come from memory
  int64_t flops = 0;

  double bytes_per_second() const { return seconds_total > 0 ? static_cast<double>(bytes) / seconds_total : 0; }
  double flops_per_second() const { return seconds_total > 0 ? static_cast<double>(flops) / seconds_total : 0; }
};

// The recorded steps of one bucket.
struct TimingReport {
  int32_t bucket_rows = 0;
  int64_t num_steps = 0;
  int64_t num_rows = 0;  // over all steps
  int32_t num_rows_min = 0, num_rows_max = 0;
  std::vector<RegionReport> regions;  // those with ops, in the order of their numbers
  RegionReport step;                  // named "step": times are wall times of whole steps, bytes and flops sums over the regions
  RegionReport outside;               // named "outside": per step, wall minus the sum of the regions
  double outside_share() const { return step.seconds_total > 0 ? outside.seconds_total / step.seconds_total : 0; }
};

// One report a bucket, ascending. `region_names` has num_regions() entries that outlive the reports.
std::vector<TimingReport> MakeTimingReports(const Timing& timing, std::span<const std::string_view> region_names);

}  // namespace tessera
