#include "plan/timing.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "core/check.h"

namespace tessera {
namespace {

double Seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

// Fills the times of a report from one value a step; sorts them.
void SetTimes(std::vector<int64_t>& nanoseconds, RegionReport& report) {
  std::sort(nanoseconds.begin(), nanoseconds.end());
  const size_t count = nanoseconds.size();
  int64_t total = 0;
  for (const int64_t value : nanoseconds) total += value;
  report.seconds_min = Seconds(nanoseconds.front());
  report.seconds_median = Seconds(nanoseconds[(count - 1) / 2] + nanoseconds[count / 2]) / 2;
  report.seconds_total = Seconds(total);
}

TimingReport MakeReport(const Timing& timing, const std::vector<int32_t>& step_idxs, std::span<const std::string_view> region_names) {
  TimingReport report;
  const StepSample& first = timing.step(step_idxs.front());
  report.bucket_rows = first.bucket_rows;
  report.num_steps = static_cast<int64_t>(step_idxs.size());
  report.num_rows_min = report.num_rows_max = first.num_rows;
  report.step.name = "step";
  report.outside.name = "outside";
  std::vector<int64_t> wall, outside, values;
  for (const int32_t step_idx : step_idxs) {
    const StepSample& step = timing.step(step_idx);
    report.num_rows += step.num_rows;
    report.num_rows_min = std::min(report.num_rows_min, step.num_rows);
    report.num_rows_max = std::max(report.num_rows_max, step.num_rows);
    wall.push_back(step.wall_nanoseconds);
    outside.push_back(step.wall_nanoseconds);
  }
  for (int32_t region = 0; region < timing.num_regions(); ++region) {
    RegionReport line;
    line.name = region_names[static_cast<size_t>(region)];
    values.clear();
    for (size_t i = 0; i < step_idxs.size(); ++i) {
      const RegionSample& sample = timing.regions(step_idxs[i])[static_cast<size_t>(region)];
      line.num_ops = sample.num_ops;  // the same in every step of a plan
      line.bytes += sample.cost.bytes;
      line.flops += sample.cost.flops;
      values.push_back(sample.nanoseconds);
      outside[i] -= sample.nanoseconds;
    }
    if (line.num_ops == 0) continue;
    SetTimes(values, line);
    report.step.num_ops += line.num_ops;
    report.step.bytes += line.bytes;
    report.step.flops += line.flops;
    report.regions.push_back(line);
  }
  SetTimes(wall, report.step);
  SetTimes(outside, report.outside);
  return report;
}

}  // namespace

int64_t MonotonicNanoseconds() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Timing::Timing(int32_t max_steps, int32_t num_regions)
    : num_regions_(num_regions),
      steps_(static_cast<size_t>(max_steps)),
      regions_(static_cast<size_t>(max_steps) * static_cast<size_t>(num_regions)) {
  TSR_CHECK(max_steps > 0 && num_regions > 0, "{} steps of {} regions", max_steps, num_regions);
}

void Timing::StartStep() noexcept {
  if (start_ == 0) start_ = MonotonicNanoseconds();
}

RegionSample* Timing::BeginReplay() noexcept {
  if (num_steps_ == static_cast<int32_t>(steps_.size())) {
    ++num_not_recorded_;
    start_ = 0;
    return nullptr;
  }
  StartStep();
  RegionSample* samples = regions_.data() + static_cast<size_t>(num_steps_) * static_cast<size_t>(num_regions_);
  std::fill_n(samples, num_regions_, RegionSample{});
  return samples;
}

void Timing::EndWall() noexcept { wall_ = MonotonicNanoseconds() - start_; }

void Timing::Record(int32_t bucket_rows, int32_t num_rows) noexcept {
  steps_[static_cast<size_t>(num_steps_++)] = {bucket_rows, num_rows, wall_};
  start_ = 0;
}

void Timing::Clear() noexcept {
  num_steps_ = 0;
  num_not_recorded_ = 0;
  start_ = 0;
}

std::vector<TimingReport> MakeTimingReports(const Timing& timing, std::span<const std::string_view> region_names) {
  TSR_CHECK(region_names.size() == static_cast<size_t>(timing.num_regions()), "{} names for {} regions", region_names.size(),
            timing.num_regions());
  std::set<int32_t> buckets;
  for (int32_t i = 0; i < timing.num_steps(); ++i) buckets.insert(timing.step(i).bucket_rows);
  std::vector<TimingReport> reports;
  for (const int32_t bucket_rows : buckets) {
    std::vector<int32_t> step_idxs;
    for (int32_t i = 0; i < timing.num_steps(); ++i)
      if (timing.step(i).bucket_rows == bucket_rows) step_idxs.push_back(i);
    reports.push_back(MakeReport(timing, step_idxs, region_names));
  }
  return reports;
}

}  // namespace tessera
