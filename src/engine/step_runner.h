// Everything a rank needs to run steps: the model, its caches, the worker pool and the plans of every bucket. The engine decides what a
// step holds; the runner replays it. A replay allocates nothing (docs/plans.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/kv_cache.h"
#include "comm/self.h"
#include "core/step.h"
#include "core/threads.h"
#include "model/forward.h"
#include "model/model.h"
#include "plan/plan_set.h"

namespace tessera {

struct RunnerOptions {
  Numerics numerics = Numerics::kBf16;
  int num_workers = 1;
  bool pin_workers = true;
  int32_t max_seqs = 8;
  int64_t max_context = 0;  // tokens a sequence may have; 0: min(max_position_embeddings, 32768)
  int32_t prefill_rows = 512;
  int32_t snapshot_reach = 0;  // CacheExtent::snapshot_reach; kSnapshotReach where a prefix cache snapshots behind a chunk's end
  bool record_layers = false;  // keep copies of every layer's results (StepRecord)
};

class StepRunner {
 public:
  // Opens and captures. Throws Error when the host refuses the memory. `model` must outlive the runner.
  StepRunner(const Model& model, RunnerOptions options);

  // Builds the plans of all buckets and runs each once on a padding row, which writes the padding slot of the caches and nothing else that
  // lasts. May be repeated; sequences keep their state. Throws Error when the host refuses the memory.
  void Capture();
  // Forgets the plans; Replay aborts until the next Capture. May be repeated.
  void Destroy();

  // The step that the next Replay runs; fill it with Clear and AddSegment. Slots are 0 ... max_seqs - 1.
  Step& step() { return step_; }
  // Decides the bucket (the smallest that holds the step's rows) and runs the step.
  void Replay();
  // The two halves of it. Rank 0 decides bucket and number; what it decided travels with the step, and every rank runs what the step says.
  // RunStep throws Error when the step's number does not follow that of the step before: this rank left one out, or runs one twice.
  void ChooseBucket();
  void RunStep() { RunPadded(false); }
  // Replay in a bucket of the caller's choice; `run_padding` lets kernels process the padding rows too.
  void ReplayInBucket(int bucket_idx, bool run_padding);
  // Records the time of steps from now on, by region; null: no longer.
  void SetTiming(Timing* timing) { plans_.SetTiming(timing); }

  // Makes resident the caches that `segment` is going to write, and with them those of the next step: a stride ahead where that is needed
  // at all, so that a step of one row usually costs nothing. `tokens_max`: tokens the sequence will ever have. Before Replay, never
  // during one. Throws Error when the host has no memory left.
  void PopulateAhead(const Segment& segment, int64_t tokens_max);

  // Logits [num_logit_rows, vocab_size] of the last replay, one row per Step::logit_row.
  View<const float> logits() const;
  const StepRecord* record() const { return record_.layers.empty() ? nullptr : &record_; }

  const Model& model() const { return model_; }
  const RunnerOptions& options() const { return options_; }
  KvCache& cache() { return cache_; }
  PlanSet& plans() { return plans_; }
  WorkerPool& pool() { return pool_; }
  int64_t max_context() const { return options_.max_context; }
  int32_t rows_max() const { return plans_.buckets().back(); }

 private:
  void RunPadded(bool run_padding);
  void WarmRun(int bucket_idx);

  const Model& model_;
  RunnerOptions options_;
  std::vector<int32_t> buckets_;
  KvCache cache_;
  SelfCommunicator comm_;
  WorkerPool pool_;
  Arena step_arena_;
  Step step_;
  std::unique_ptr<Arena> record_arena_;
  StepRecord record_;
  int64_t last_number_ = 0;  // of the steps that were run
  PlanSet plans_;
  std::vector<ForwardOutputs> outputs_;  // by bucket, while captured
};

}  // namespace tessera
