#include "engine/step_runner.h"

#include <algorithm>

#include "core/check.h"

namespace tessera {
namespace {

constexpr int64_t kDefaultMaxContext = 32768;
constexpr int64_t kPopulateTokens = 256;       // populated ahead at once: some 230 KB of V4.1-Flash, a fraction of a millisecond
constexpr size_t kArgumentBytesMax = size_t{1} << 32;  // address space; a plan's arguments are a few hundred bytes an op

RunnerOptions Resolve(const ModelConfig& config, RunnerOptions options) {
  if (options.max_context == 0) options.max_context = std::min(config.max_position_embeddings, kDefaultMaxContext);
  if (options.max_context < 1 || options.max_context > config.max_position_embeddings)
    Fail("a context of {} tokens was asked for, the model has positions for {}", options.max_context, config.max_position_embeddings);
  if (options.max_seqs < 1 || options.prefill_rows < 1)
    Fail("{} sequences with {} prefill rows: both must be at least 1", options.max_seqs, options.prefill_rows);
  return options;
}

}  // namespace

StepRunner::StepRunner(const Model& model, RunnerOptions options)
    : model_(model),
      options_(Resolve(model.config(), options)),
      buckets_(PowerOfTwoBuckets(options_.max_seqs, options_.prefill_rows)),
      // One slot more than sequences: padding rows write there. It must hold a whole bucket of them.
      cache_(CacheLayouts(model.config(), options_.numerics,
                          {std::max<int64_t>(options_.max_context, buckets_.back()), buckets_.back(), options_.snapshot_reach}),
             options_.max_seqs + 1),
      pool_({options_.num_workers, options_.pin_workers}),
      step_arena_("step", (size_t{1} << 20) + static_cast<size_t>(buckets_.back()) * 256),
      step_(Step::Allocate(step_arena_, buckets_.back(), options_.max_seqs)) {
  const ModelConfig& config = model.config();
  if (options_.record_layers) {
    record_arena_ = std::make_unique<Arena>("layer records", size_t{1} << 38);
    record_ = StepRecord::Allocate(*record_arena_, config, buckets_.back());
  }
  ForwardContext context;
  context.model = &model_;
  context.numerics = options_.numerics;
  context.step = &step_;
  context.cache = &cache_;
  context.comm = &comm_;
  context.record = record();
  context.max_context = std::max<int64_t>(options_.max_context, buckets_.back());
  context.max_rows = buckets_.back();

  PlanSet::Options plan_options;
  plan_options.buckets = buckets_;
  plan_options.activation_bytes_max = ActivationBytesMax(config, options_.numerics, buckets_.back(), options_.num_workers);
  plan_options.argument_bytes_max = kArgumentBytesMax;
  std::vector<ForwardOutputs> descending;
  plans_ = std::make_unique<PlanSet>(std::move(plan_options), pool_,
                                     [&](PlanBuilder& builder) { descending.push_back(BuildForward(builder, context)); });
  outputs_.assign(descending.rbegin(), descending.rend());
}

void StepRunner::Replay() { ReplayInBucket(plans_->BucketFor(step_.num_rows), false); }

void StepRunner::ReplayInBucket(int bucket_idx, bool run_padding) {
  step_.Pad(plans_->buckets()[static_cast<size_t>(bucket_idx)], run_padding);
  step_.bucket_idx = bucket_idx;
  plans_->Replay(step_.bucket_idx);
}

void StepRunner::PopulateAhead(const Segment& segment, int64_t tokens_max) {
  const int64_t end = segment.start_pos + segment.num_rows;
  const int64_t next_step = std::min(tokens_max, end + 1);
  if (cache_.populated_tokens(segment.slot) >= next_step) return;
  cache_.Populate(segment.slot, std::min(tokens_max, end + std::max<int64_t>(kPopulateTokens, segment.num_rows)));
}

View<const float> StepRunner::logits() const {
  const View<float> logits = outputs_[static_cast<size_t>(step_.bucket_idx)].logits;
  return logits.Rows(0, step_.num_logit_rows);
}

}  // namespace tessera
