// The plans of one model: ascending buckets of rows, the largest built first, the smaller ones over a prefix of its activations.
// Capture builds and warms them, Destroy forgets them; in between, which plan runs is part of the step. Two functions keep that seam:
// BucketFor decides (rank 0), Replay runs what the step says (every rank).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/step.h"
#include "plan/plan.h"
#include "plan/timing.h"

namespace tessera {

// 1, 2, 4, ... up to `rows_max` rounded down to a power of two, then rows_max itself and the prefill bucket where they are larger than
// those before.
std::vector<int32_t> PowerOfTwoBuckets(int32_t rows_max, int32_t prefill_rows);

class PlanSet {
 public:
  using Build = std::function<void(PlanBuilder& builder)>;
  using WarmRun = std::function<void(int bucket_idx)>;

  // No plans yet. `pool` must outlive the set.
  PlanSet(std::vector<int32_t> buckets, WorkerPool& pool);

  // Builds every bucket, the largest first, over one arena of `activation_bytes_max`, seals the arenas, touches every page a replay will
  // (each worker its own scratch) and calls `warm_run` once a bucket, the largest first. Destroys what was captured before. Throws Error
  // when the host refuses memory; then nothing is captured.
  void Capture(size_t activation_bytes_max, const Build& build, const WarmRun& warm_run);
  // Forgets plans, arenas and scratch; views of activations end here. Does nothing when nothing is captured.
  void Destroy();
  bool captured() const { return !plans_.empty(); }

  const std::vector<int32_t>& buckets() const { return buckets_; }
  // Index of the smallest bucket that holds `num_rows`; aborts when none does.
  int BucketFor(int32_t num_rows) const;
  // Runs the plan that step.bucket_idx names, over the step that the plans were built with. Aborts when nothing is captured, or when the
  // step's rows do not fit the bucket.
  void Replay(const Step& step) const noexcept;
  // Replays fill `timing` from now on; null: they read no clock. It must outlive its use here.
  void SetTiming(Timing* timing) { timing_ = timing; }
  Timing* timing() const { return timing_; }

  const Plan& plan(int bucket_idx) const;
  double build_seconds(int bucket_idx) const { return build_seconds_[static_cast<size_t>(bucket_idx)]; }
  size_t activation_bytes() const { return activation_bytes_; }
  size_t scratch_bytes() const { return scratch_bytes_; }  // per worker
  Arena& activations() { return *activations_; }           // while captured

 private:
  void BuildAll(const Build& build);
  void AllocateScratch();
  void TouchPages();

  WorkerPool& pool_;
  std::vector<int32_t> buckets_;
  Timing* timing_ = nullptr;
  std::unique_ptr<Arena> activations_, arguments_;
  std::vector<Plan> plans_;            // by bucket
  std::vector<double> build_seconds_;  // by bucket
  std::vector<std::unique_ptr<Arena>> scratch_arenas_;
  std::vector<uint8_t*> scratch_;
  size_t activation_bytes_ = 0;
  size_t scratch_bytes_ = 0;
  int32_t num_regions_ = 0;  // largest of an op, plus one
};

}  // namespace tessera
