#include "engine/step_runner.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "core/check.h"

namespace tessera {
namespace {

constexpr int64_t kDefaultMaxContext = 32768;
constexpr int64_t kPopulateTokens = 256;  // populated ahead at once: some 230 KB of V4.1-Flash, a fraction of a millisecond

RunnerOptions Resolve(const ModelConfig& config, RunnerOptions options) {
  if (options.max_context == 0) options.max_context = std::min(config.max_position_embeddings, kDefaultMaxContext);
  if (options.max_context < 1 || options.max_context > config.max_position_embeddings)
    Fail("a context of {} tokens was asked for, the model has positions for {}", options.max_context, config.max_position_embeddings);
  if (options.max_seqs < 1 || options.prefill_rows < 1)
    Fail("{} sequences with {} prefill rows: both must be at least 1", options.max_seqs, options.prefill_rows);
  return options;
}

// When every other sequence is decoding, half of the prefill rows are still there for a prompt (scheduler.h).
int32_t LargestBucket(const RunnerOptions& options) {
  return std::max(options.prefill_rows, options.max_seqs - 1 + (options.prefill_rows + 1) / 2);
}

}  // namespace

StepRunner::StepRunner(const Model& model, RunnerOptions options)
    : model_(model),
      options_(Resolve(model.config(), options)),
      buckets_(PowerOfTwoBuckets(options_.max_seqs, LargestBucket(options_))),
      // One slot more than sequences: padding rows write there. It must hold a whole bucket of them.
      cache_(CacheLayouts(model.config(), options_.numerics,
                          {std::max<int64_t>(options_.max_context, buckets_.back()), buckets_.back(), options_.snapshot_reach}),
             options_.max_seqs + 1),
      pool_({options_.num_workers, options_.pin_workers}),
      step_arena_("step", (size_t{1} << 20) + static_cast<size_t>(buckets_.back()) * 256),
      step_(Step::Allocate(step_arena_, buckets_.back(), options_.max_seqs)),
      plans_(buckets_, pool_) {
  const int32_t rows_max = buckets_.back();
  if (options_.prefill_rows <= options_.max_seqs)
    spdlog::warn("--prefill-rows {} is not larger than the largest decode bucket {}: chunks run in the smallest bucket that fits",
                 options_.prefill_rows, options_.max_seqs);
  if (options_.record_layers) {
    Arena measured = Arena::Measuring("layer records");
    StepRecord::Allocate(measured, model.config(), rows_max);
    record_arena_ = std::make_unique<Arena>("layer records", measured.used_bytes());
    record_ = StepRecord::Allocate(*record_arena_, model.config(), rows_max);
  }
  Capture();
}

void StepRunner::Capture() {
  const int32_t rows_max = buckets_.back();
  ForwardContext context;
  context.model = &model_;
  context.numerics = options_.numerics;
  context.step = &step_;
  context.cache = &cache_;
  context.comm = &comm_;
  context.record = record();
  context.max_context = std::max<int64_t>(options_.max_context, rows_max);
  context.max_rows = rows_max;

  Destroy();
  std::vector<ForwardOutputs> descending;
  plans_.Capture(
      ActivationBytesMax(model_.config(), options_.numerics, rows_max, options_.num_workers),
      [&](PlanBuilder& builder) { descending.push_back(BuildForward(builder, context)); }, [this](int bucket_idx) { WarmRun(bucket_idx); });
  outputs_.assign(descending.rbegin(), descending.rend());
  step_.Clear();
  for (size_t i = 0; i < buckets_.size(); ++i)
    spdlog::debug("bucket of {} rows: {} ops built in {:.2f} ms", buckets_[i], plans_.plan(static_cast<int>(i)).num_ops(),
                  plans_.build_seconds(static_cast<int>(i)) * 1e3);
}

void StepRunner::Destroy() {
  plans_.Destroy();
  outputs_.clear();
}

// One row suffices: every op runs, every function is resolved, and the pages that more rows need were touched. A whole bucket would cost
// as much as a prompt at every start.
void StepRunner::WarmRun(int bucket_idx) {
  step_.Clear();
  step_.Pad(1, true);
  step_.bucket_idx = bucket_idx;
  plans_.Replay(step_);
}

void StepRunner::Replay() {
  if (Timing* timing = plans_.timing()) timing->StartStep();
  ChooseBucket();
  RunStep();
}

void StepRunner::ChooseBucket() {
  step_.ResetDerived();
  step_.bucket_idx = plans_.BucketFor(step_.num_rows);
  step_.number = last_number_ + 1;
}

void StepRunner::ReplayInBucket(int bucket_idx, bool run_padding) {
  step_.bucket_idx = bucket_idx;
  step_.number = last_number_ + 1;
  RunPadded(run_padding);
}

void StepRunner::RunPadded(bool run_padding) {
  if (Timing* timing = plans_.timing()) timing->StartStep();
  if (step_.number != last_number_ + 1) Fail("step {} was to follow step {}: this rank is out of step", step_.number, last_number_);
  last_number_ = step_.number;
  step_.ResetDerived();
  step_.Pad(plans_.plan(step_.bucket_idx).bucket_rows(), run_padding);
  plans_.Replay(step_);
}

void StepRunner::PopulateAhead(const Segment& segment, int64_t tokens_max) {
  const int64_t end = segment.start_pos + segment.num_rows;
  const int64_t next_step = std::min(tokens_max, end + 1);
  if (cache_.populated_tokens(segment.slot) >= next_step) return;
  cache_.Populate(segment.slot, std::min(tokens_max, end + std::max<int64_t>(kPopulateTokens, segment.num_rows)));
}

View<const float> StepRunner::logits() const {
  TSR_CHECK(!outputs_.empty(), "logits of step {}: its plans were destroyed", step_.number);
  const View<float> logits = outputs_[static_cast<size_t>(step_.bucket_idx)].logits;
  return logits.Rows(0, step_.num_logit_rows);
}

}  // namespace tessera
