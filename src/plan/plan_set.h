// The plans of one model: ascending buckets of rows, the largest built first, the smaller ones over a prefix of its activations.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/plan.h"

namespace tessera {

// 1, 2, 4, ... up to `rows_max` rounded down to a power of two, then rows_max itself and the prefill bucket where they are larger than
// those before.
std::vector<int32_t> PowerOfTwoBuckets(int32_t rows_max, int32_t prefill_rows);

class PlanSet {
 public:
  struct Options {
    std::vector<int32_t> buckets;     // ascending
    size_t activation_bytes_max = 0;  // address space to reserve
    size_t argument_bytes_max = 0;
  };
  using Build = std::function<void(PlanBuilder& builder)>;

  // Builds every bucket, seals the arenas and allocates the workers' scratch. `pool` must outlive the set.
  PlanSet(Options options, WorkerPool& pool, const Build& build);

  const std::vector<int32_t>& buckets() const { return buckets_; }
  // Index of the smallest bucket that holds `num_rows`; aborts when none does.
  int BucketFor(int32_t num_rows) const;
  void Replay(int bucket_idx) const noexcept { plans_[bucket_idx].Replay(pool_, scratch_); }
  const Plan& plan(int bucket_idx) const { return plans_[bucket_idx]; }

  size_t activation_bytes() const { return activation_bytes_; }
  size_t scratch_bytes() const { return scratch_bytes_; }  // per worker
  Arena& activations() { return activations_; }

 private:
  WorkerPool& pool_;
  std::vector<int32_t> buckets_;
  Arena activations_;
  Arena arguments_;
  std::vector<Plan> plans_;
  std::vector<std::unique_ptr<Arena>> scratch_arenas_;
  std::vector<uint8_t*> scratch_;
  size_t activation_bytes_ = 0;
  size_t scratch_bytes_ = 0;
};

}  // namespace tessera
