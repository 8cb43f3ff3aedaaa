// The only door to a running model: submit requests, step, cancel. Each step batches whatever sequences are there; what a request gets does
// not depend on its neighbours. One thread calls; the workers are inside.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/admission.h"
#include "engine/options.h"
#include "engine/prefix_cache.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_runner.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

// Seconds since any fixed moment, never going back. Read between steps only.
using EngineClock = std::function<double()>;
double SteadySeconds();

class Engine {
 public:
  // Opens a model directory and builds the plans. Throws Error naming what is wrong with the files, options or memory.
  static std::unique_ptr<Engine> Open(const EngineOptions& options, EngineClock clock = SteadySeconds);

  // Queues a request. Throws RequestError, and takes nothing, with status 400 when it could never run (request_check.h, or more bytes of
  // caches than the budget has) and 429 when the queue is full: as many wait as the free slots can take and queue_limit beyond.
  Ticket Submit(Request request);
  // Ends what was cancelled or is past its deadline, runs one step and appends what happened to `events`. Returns false when there was
  // nothing to run.
  bool Step(std::vector<Event>& events);
  // Ends a request wherever it is: queued, in its prompt or decoding. Its last event (kCancelled) comes with the next Step. Unknown tickets
  // are ignored.
  void Cancel(Ticket ticket);

  bool idle() const { return sequences_.empty(); }
  int64_t num_running() const { return runner_->options().max_seqs - static_cast<int64_t>(free_slots_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(sequences_.size()) - num_running(); }
  const Admission& admission() const { return *admission_; }
  const PrefixCache& prefix_cache() const { return *prefix_cache_; }
  const Model& model() const { return *model_; }
  const ModelConfig& config() const { return model_->config(); }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  StepRunner& runner() { return *runner_; }

 private:
  Engine() = default;
  void OpenCaches(const EngineOptions& options);
  void EndCancelledAndOverdue(std::vector<Event>& events);
  void FindPrefixes();
  std::vector<ScheduledChunk> Schedule() const;
  void Admit(Sequence& sequence);
  void PrepareCaches(std::vector<ScheduledChunk>& chunks, std::vector<Event>& events);
  void RunChunks(const std::vector<ScheduledChunk>& chunks);
  void CollectResults(const std::vector<ScheduledChunk>& chunks, std::vector<Event>& events);
  void KeepSnapshot(const Sequence& sequence, int64_t num_tokens);
  void Advance(Sequence& sequence, std::span<const float> logits, std::vector<Event>& events);
  void End(Sequence& sequence, EndReason reason, std::string error, std::vector<Event>& events);
  void RemoveEnded();

  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<StepRunner> runner_;
  std::optional<Admission> admission_;
  std::optional<PrefixCache> prefix_cache_;
  PrefixKey prefix_key_;
  int64_t snapshot_stride_ = 0;  // 0: the prefix cache is off
  std::unique_ptr<SamplerScratch> sampler_scratch_;
  EngineClock clock_;
  double now_s_ = 0;  // when the running Step began, then when its replay ended
  int64_t queue_limit_ = 0;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // in order of arrival
  std::vector<Ticket> cancelled_;
  std::vector<int32_t> free_slots_;
  Ticket next_ticket_ = 1;
};

}  // namespace tessera
