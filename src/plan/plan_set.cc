#include "plan/plan_set.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/check.h"

namespace tessera {
namespace {

constexpr size_t kPageBytes = 4096;

// Makes the pages of a range this process's own without changing what they hold.
void Touch(uint8_t* begin, int64_t bytes) noexcept {
  for (int64_t offset = 0; offset < bytes; offset += kPageBytes) {
    volatile uint8_t* byte = begin + offset;
    *byte = *byte;
  }
}

}  // namespace

std::vector<int32_t> PowerOfTwoBuckets(int32_t rows_max, int32_t prefill_rows) {
  std::vector<int32_t> buckets;
  for (int32_t rows = 1; rows <= rows_max; rows *= 2) buckets.push_back(rows);
  if (buckets.empty() || buckets.back() < rows_max) buckets.push_back(std::max(rows_max, 1));
  if (buckets.back() < prefill_rows) buckets.push_back(prefill_rows);
  return buckets;
}

PlanSet::PlanSet(std::vector<int32_t> buckets, WorkerPool& pool) : pool_(pool), buckets_(std::move(buckets)) {
  TSR_CHECK(!buckets_.empty() && std::is_sorted(buckets_.begin(), buckets_.end()), "{} buckets", buckets_.size());
}

void PlanSet::Capture(size_t activation_bytes_max, const Build& build, const WarmRun& warm_run) {
  Destroy();
  try {
    activations_ = std::make_unique<Arena>("activations", activation_bytes_max);
    arguments_ = std::unique_ptr<Arena>(new Arena(Arena::Growing("plan arguments")));
    BuildAll(build);
    AllocateScratch();
  } catch (...) {
    Destroy();
    throw;
  }
  TouchPages();
  Timing* timing = std::exchange(timing_, nullptr);
  for (int bucket_idx = static_cast<int>(buckets_.size()); bucket_idx-- > 0;) warm_run(bucket_idx);
  timing_ = timing;
}

// Largest first: it sizes the arena, and what the smaller ones allocate lies inside it because every buffer shrinks with the rows.
void PlanSet::BuildAll(const Build& build) {
  std::vector<Plan> descending;
  build_seconds_.assign(buckets_.size(), 0);
  for (size_t i = buckets_.size(); i-- > 0;) {
    const int64_t start = MonotonicNanoseconds();
    activations_->Rewind(0);
    PlanBuilder builder(*activations_, *arguments_, buckets_[i], pool_.num_workers());
    build(builder);
    activation_bytes_ = std::max(activation_bytes_, activations_->used_bytes());
    descending.push_back(builder.Finish());
    scratch_bytes_ = std::max(scratch_bytes_, descending.back().scratch_bytes());
    for (const Op& op : descending.back().ops()) num_regions_ = std::max(num_regions_, op.region + 1);
    build_seconds_[i] = static_cast<double>(MonotonicNanoseconds() - start) * 1e-9;
  }
  plans_.assign(std::make_move_iterator(descending.rbegin()), std::make_move_iterator(descending.rend()));
  activations_->Seal();
  arguments_->Seal();
}

void PlanSet::AllocateScratch() {
  for (int worker_idx = 0; worker_idx < pool_.num_workers(); ++worker_idx) {
    scratch_arenas_.push_back(std::make_unique<Arena>("worker scratch", scratch_bytes_ + Arena::kAlignment));
    scratch_.push_back(scratch_arenas_.back()->Allocate<uint8_t>(static_cast<int64_t>(scratch_bytes_)));
    scratch_arenas_.back()->Seal();
  }
}

// By the workers themselves, so that a page lies on the node of the first worker that gets a part of it.
void PlanSet::TouchPages() {
  pool_.Run([this](int worker_idx) noexcept {
    Touch(scratch_[static_cast<size_t>(worker_idx)], static_cast<int64_t>(scratch_bytes_));
    const Range part = PartOf(static_cast<int64_t>(activation_bytes_), worker_idx, pool_.num_workers(), kPageBytes);
    Touch(activations_->base() + part.begin, part.end - part.begin);
  });
}

void PlanSet::Destroy() {
  plans_.clear();
  build_seconds_.clear();
  scratch_.clear();
  scratch_arenas_.clear();
  activations_.reset();
  arguments_.reset();
  activation_bytes_ = scratch_bytes_ = 0;
  num_regions_ = 0;
}

int PlanSet::BucketFor(int32_t num_rows) const {
  const auto it = std::lower_bound(buckets_.begin(), buckets_.end(), num_rows);
  TSR_CHECK(it != buckets_.end(), "{} rows, the largest bucket has {}", num_rows, buckets_.back());
  return static_cast<int>(it - buckets_.begin());
}

const Plan& PlanSet::plan(int bucket_idx) const {
  TSR_CHECK(captured(), "a set of {} buckets: its plans were destroyed or never captured", buckets_.size());
  TSR_CHECK(bucket_idx >= 0 && bucket_idx < static_cast<int>(plans_.size()), "bucket {} of {}", bucket_idx, plans_.size());
  return plans_[static_cast<size_t>(bucket_idx)];
}

void PlanSet::Replay(const Step& step) const noexcept {
  const Plan& replayed = plan(step.bucket_idx);
  TSR_CHECK(step.num_rows <= replayed.bucket_rows(), "{} rows in a bucket of {}", step.num_rows, replayed.bucket_rows());
  if (timing_ == nullptr) return replayed.Replay(pool_, scratch_);
  TSR_CHECK(num_regions_ <= timing_->num_regions(), "plans of {} regions, timing of {}", num_regions_, timing_->num_regions());
  replayed.ReplayTimed(pool_, scratch_, step.num_rows, *timing_);
}

}  // namespace tessera
