#include "plan/plan_set.h"

#include <algorithm>

#include "core/check.h"

namespace tessera {

std::vector<int32_t> PowerOfTwoBuckets(int32_t rows_max, int32_t prefill_rows) {
  std::vector<int32_t> buckets;
  for (int32_t rows = 1; rows <= rows_max; rows *= 2) buckets.push_back(rows);
  if (buckets.empty() || buckets.back() < rows_max) buckets.push_back(std::max(rows_max, 1));
  if (buckets.back() < prefill_rows) buckets.push_back(prefill_rows);
  return buckets;
}

PlanSet::PlanSet(Options options, WorkerPool& pool, const Build& build)
    : pool_(pool),
      buckets_(std::move(options.buckets)),
      activations_("activations", options.activation_bytes_max),
      arguments_("plan arguments", options.argument_bytes_max) {
  TSR_CHECK(!buckets_.empty() && std::is_sorted(buckets_.begin(), buckets_.end()), "{} buckets", buckets_.size());
  // Largest first: it sizes the arena, and what the smaller ones allocate lies inside it because every buffer shrinks with the rows.
  std::vector<Plan> descending;
  for (size_t i = buckets_.size(); i-- > 0;) {
    activations_.Rewind(0);
    PlanBuilder builder(activations_, arguments_, buckets_[i], pool.num_workers());
    build(builder);
    activation_bytes_ = std::max(activation_bytes_, activations_.used_bytes());
    descending.push_back(builder.Finish());
    scratch_bytes_ = std::max(scratch_bytes_, descending.back().scratch_bytes());
  }
  plans_.assign(std::make_move_iterator(descending.rbegin()), std::make_move_iterator(descending.rend()));
  activations_.Seal();
  arguments_.Seal();
  for (int worker_idx = 0; worker_idx < pool.num_workers(); ++worker_idx) {
    scratch_arenas_.push_back(std::make_unique<Arena>("worker scratch", scratch_bytes_ + Arena::kAlignment));
    scratch_.push_back(scratch_arenas_.back()->Allocate<uint8_t>(static_cast<int64_t>(scratch_bytes_)));
    scratch_arenas_.back()->Seal();
  }
}

int PlanSet::BucketFor(int32_t num_rows) const {
  const auto it = std::lower_bound(buckets_.begin(), buckets_.end(), num_rows);
  TSR_CHECK(it != buckets_.end(), "{} rows, the largest bucket has {}", num_rows, buckets_.back());
  return static_cast<int>(it - buckets_.begin());
}

}  // namespace tessera
