#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "engine/scheduler.h"
#include "model/encoder_shortcut.h"
#include "tokenizer/token_map.h"

namespace tessera {

const char* EndReasonName(EndReason reason) {
  switch (reason) {
    case EndReason::kNone:
      return "none";
    case EndReason::kStop:
      return "stop";
    case EndReason::kLength:
      return "length";
    case EndReason::kCancelled:
      return "cancelled";
    case EndReason::kError:
      return "error";
  }
  return "?";
}

namespace {

// Options whose other values later versions will take.
void CheckSupported(const EngineOptions& options) {
  if (options.ranks != 1) Fail("--ranks {}: this version runs on one rank", options.ranks);
  if (options.comm != CommBackend::kAuto) Fail("--comm: this version runs on one rank, only auto is possible");
  if (options.engram != EngramPlacement::kAuto && options.engram != EngramPlacement::kPrivate)
    Fail("--engram: this version reads the tables privately, only auto and private are possible");
  if (options.load != LoadMode::kMmap) Fail("--load: this version maps the weights, only mmap is possible");
}

}  // namespace

std::unique_ptr<Engine> Engine::Open(const EngineOptions& options) {
  CheckSupported(options);
  std::unique_ptr<Engine> engine(new Engine);
  // The config says first what kind of folder this is; the tokenizer comes before the weights because the Engram hashes need its map.
  const ModelConfig config = ReadModelConfig(options.model_dir);
  std::vector<int32_t> token_map;
  const bool needs_tokenizer = !config.engram_layer_ids.empty();
  if (needs_tokenizer || FileExists(options.model_dir + "/tokenizer.json")) engine->tokenizer_ = Tokenizer::Load(options.model_dir);
  if (needs_tokenizer) token_map = CompressedTokenMap(*engine->tokenizer_);
  engine->model_ = std::make_unique<Model>(options.model_dir, token_map, ClaimOptions{});

  RunnerOptions runner;
  runner.numerics = options.numerics;
  runner.num_workers = options.threads > 0 ? options.threads : NumUsableCores();
  runner.max_seqs = options.max_seqs;
  runner.max_context = options.max_context;
  runner.prefill_rows = options.prefill_rows;
  engine->runner_ = std::make_unique<StepRunner>(*engine->model_, runner);
  engine->sampler_scratch_ = std::make_unique<SamplerScratch>(config.vocab_size);
  for (int32_t slot = options.max_seqs; slot-- > 0;) engine->free_slots_.push_back(slot);
  return engine;
}

Ticket Engine::Submit(Request request) {
  const int64_t num_prompt = static_cast<int64_t>(request.prompt_ids.size());
  if (num_prompt == 0) Fail("the prompt has no token ids");
  for (size_t i = 0; i < request.prompt_ids.size(); ++i)
    if (request.prompt_ids[i] < 0 || request.prompt_ids[i] >= config().vocab_size)
      Fail("prompt id {} at position {} is outside the vocabulary of {}", request.prompt_ids[i], i, config().vocab_size);
  if (request.max_tokens < 1) Fail("{} new tokens were asked for: at least 1", request.max_tokens);
  if (num_prompt >= runner_->max_context())
    Fail("the prompt has {} tokens, the context holds {} with at least one new token (--max-context; the model has positions for {})",
         num_prompt, runner_->max_context(), config().max_position_embeddings);
  if (const std::optional<std::string> problem = SamplingOptionsError(request.sampling)) Fail("{}", *problem);
  const int64_t tokens_max = num_prompt + std::min(request.max_tokens, runner_->max_context() - num_prompt);
  const Ticket ticket = next_ticket_++;
  sequences_.push_back(std::make_unique<Sequence>(ticket, std::move(request), tokens_max, tokenizer()));
  return ticket;
}

void Engine::Cancel(Ticket ticket) {
  const bool known = std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& sequence) { return sequence->ticket == ticket; });
  if (known) cancelled_.push_back(ticket);
}

bool Engine::Step(std::vector<Event>& events) {
  for (const Ticket ticket : std::exchange(cancelled_, {}))
    for (const std::unique_ptr<Sequence>& sequence : sequences_)
      if (sequence->ticket == ticket) Finish(*sequence, EndReason::kCancelled, {}, events);
  RemoveFinished();
  if (sequences_.empty()) return false;

  std::vector<SchedulerSequence> views;
  for (const std::unique_ptr<Sequence>& sequence : sequences_)
    views.push_back({sequence->pending(), sequence->slot >= 0, sequence->decoding()});
  const std::vector<ScheduledChunk> chunks =
      ScheduleStep(views, {runner_->rows_max(), runner_->options().prefill_rows, static_cast<int32_t>(free_slots_.size())});
  RunChunks(chunks);

  const View<const float> logits = runner_->logits();
  const tessera::Step& step = runner_->step();
  int64_t logit_row = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    Sequence& sequence = *sequences_[static_cast<size_t>(chunks[i].sequence_idx)];
    sequence.num_processed += chunks[i].num_rows;
    const tessera::Segment& segment = step.segments[i];
    const bool failed = std::any_of(step.row_failed + segment.first_row, step.row_failed + segment.first_row + segment.num_rows,
                                    [](uint8_t flag) { return flag != 0; });
    const bool has_logits = sequence.pending() == 0;
    if (failed)
      Finish(sequence, EndReason::kError, "an Engram table row has a scale byte of 255: the checkpoint is damaged (tessera check --deep)",
             events);
    else if (has_logits)
      Advance(sequence, {logits.Row(logit_row), static_cast<size_t>(logits.cols)}, events);
    logit_row += has_logits ? 1 : 0;
  }
  RemoveFinished();
  return true;
}

void Engine::RunChunks(const std::vector<ScheduledChunk>& chunks) {
  tessera::Step& step = runner_->step();
  step.Clear();
  for (const ScheduledChunk& chunk : chunks) {
    Sequence& sequence = *sequences_[static_cast<size_t>(chunk.sequence_idx)];
    if (chunk.admit) {
      sequence.slot = free_slots_.back();
      free_slots_.pop_back();
    }
    const bool reaches_end = sequence.num_processed + chunk.num_rows == static_cast<int64_t>(sequence.tokens.size());
    step.AddSegment(sequence.slot, sequence.num_processed, sequence.tokens.data() + sequence.num_processed, chunk.num_rows,
                    reaches_end ? 1 : 0);
    // Nothing of a prompt is asked for but what follows its end: rows that cannot reach it leave the pass early.
    if (!sequence.decoding()) SetDepths(config(), {sequence.num_prompt()}, step);
  }
  runner_->Replay();
}

void Engine::Advance(Sequence& sequence, std::span<const float> logits, std::vector<Event>& events) {
  const uint64_t position = sequence.tokens.size();
  const std::optional<SampledToken> sampled = Sample(logits, sequence.request.sampling, position, *sampler_scratch_);
  if (!sampled) return Finish(sequence, EndReason::kError, "the logits hold NaN or no finite value", events);
  const int32_t token_id = sampled->token_id;
  const std::vector<int64_t>& eos = config().eos_token_ids;
  const bool is_eos = std::find(eos.begin(), eos.end(), token_id) != eos.end();
  if (is_eos && !sequence.request.ignore_eos) {
    events.push_back({sequence.ticket, token_id, {}, EndReason::kNone, {}});
    return Finish(sequence, EndReason::kStop, {}, events);
  }
  sequence.tokens.push_back(token_id);
  events.push_back({sequence.ticket, token_id, sequence.text.Push(token_id), EndReason::kNone, {}});
  if (sequence.text.stopped())
    Finish(sequence, EndReason::kStop, {}, events);
  else if (static_cast<int64_t>(sequence.tokens.size()) >= sequence.tokens_max)
    Finish(sequence, EndReason::kLength, {}, events);
}

void Engine::Finish(Sequence& sequence, EndReason reason, std::string error, std::vector<Event>& events) {
  events.push_back({sequence.ticket, -1, sequence.text.Finish(), reason, std::move(error)});
  if (sequence.slot >= 0) {
    runner_->cache().Release(sequence.slot);
    free_slots_.push_back(sequence.slot);
    sequence.slot = -1;
  }
  finished_.push_back(sequence.ticket);
}

void Engine::RemoveFinished() {
  std::erase_if(sequences_, [&](const std::unique_ptr<Sequence>& sequence) {
    return std::find(finished_.begin(), finished_.end(), sequence->ticket) != finished_.end();
  });
  finished_.clear();
}

}  // namespace tessera
