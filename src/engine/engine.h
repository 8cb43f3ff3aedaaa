// The only door to a running model: submit requests, step, cancel. Each step batches whatever sequences are there; what a request gets does
// not depend on its neighbours. One thread calls; the workers are inside.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/options.h"
#include "engine/sequence.h"
#include "engine/step_runner.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

class Engine {
 public:
  // Opens a model directory and builds the plans. Throws Error naming what is wrong with the files, options or memory.
  static std::unique_ptr<Engine> Open(const EngineOptions& options);

  // Queues a request. Throws Error when it could never run: no prompt ids, an id outside the vocabulary, a prompt that leaves no room in
  // the context, max_tokens < 1, sampling options out of range.
  Ticket Submit(Request request);
  // Runs one step and appends what happened to `events`. Returns false when there was nothing to do.
  bool Step(std::vector<Event>& events);
  // Ends a request wherever it is; its last event (kCancelled) comes with the next Step. Unknown tickets are ignored.
  void Cancel(Ticket ticket);
  bool idle() const { return sequences_.empty(); }

  const Model& model() const { return *model_; }
  const ModelConfig& config() const { return model_->config(); }
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  StepRunner& runner() { return *runner_; }

 private:
  Engine() = default;
  void RunChunks(const std::vector<struct ScheduledChunk>& chunks);
  void Advance(Sequence& sequence, std::span<const float> logits, std::vector<Event>& events);
  void Finish(Sequence& sequence, EndReason reason, std::string error, std::vector<Event>& events);
  void RemoveFinished();

  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<SamplerScratch> sampler_scratch_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // in order of arrival
  std::vector<Ticket> cancelled_;
  std::vector<int32_t> free_slots_;
  std::vector<Ticket> finished_;
  Ticket next_ticket_ = 1;
};

}  // namespace tessera
