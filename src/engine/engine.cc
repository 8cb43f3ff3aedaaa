#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "engine/request_check.h"
#include "model/encoder_shortcut.h"
#include "model/sequence_state.h"
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
    case EndReason::kDeadline:
      return "deadline";
    case EndReason::kError:
      return "error";
  }
  return "?";
}

namespace {

constexpr int kBadRequest = 400;
constexpr int kTooManyRequests = 429;

// Options whose other values later versions will take.
void CheckSupported(const EngineOptions& options) {
  if (options.ranks != 1) Fail("--ranks {}: this version runs on one rank", options.ranks);
  if (options.comm != CommBackend::kAuto) Fail("--comm: this version runs on one rank, only auto is possible");
  if (options.engram != EngramPlacement::kAuto && options.engram != EngramPlacement::kPrivate)
    Fail("--engram: this version reads the tables privately, only auto and private are possible");
  if (options.load != LoadMode::kMmap) Fail("--load: this version maps the weights, only mmap is possible");
}

// The boundaries inside the next chunk of a prompt and the first one at or behind its end.
std::vector<int64_t> BoundariesUpTo(const Sequence& sequence, int32_t num_rows) {
  std::vector<int64_t> boundaries;
  int64_t boundary = sequence.num_processed;
  do {
    boundary = NextBoundary(boundary, sequence.boundaries);
    boundaries.push_back(boundary);
  } while (boundary < sequence.num_processed + num_rows);
  return boundaries;
}

bool Contains(const auto& ids, int32_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

double SteadySeconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::unique_ptr<Engine> Engine::Open(const EngineOptions& options, EngineClock clock) {
  CheckSupported(options);
  std::unique_ptr<Engine> engine(new Engine);
  engine->clock_ = std::move(clock);
  engine->queue_limit_ = options.queue_limit;
  // The config says first what kind of folder this is; the tokenizer comes before the weights because the Engram hashes need its map.
  const ModelConfig config = ReadModelConfig(options.model_dir);
  std::vector<int32_t> token_map;
  const bool needs_tokenizer = !config.engram_layer_ids.empty();
  if (needs_tokenizer || FileExists(options.model_dir + "/tokenizer.json")) engine->tokenizer_ = Tokenizer::Load(options.model_dir);
  if (needs_tokenizer) token_map = CompressedTokenMap(*engine->tokenizer_);
  engine->model_ = std::make_unique<Model>(options.model_dir, token_map, ClaimOptions{});
  engine->OpenCaches(options);
  engine->sampler_scratch_ = std::make_unique<SamplerScratch>(config.vocab_size);
  for (int32_t slot = options.max_seqs; slot-- > 0;) engine->free_slots_.push_back(slot);
  return engine;
}

void Engine::OpenCaches(const EngineOptions& options) {
  RunnerOptions runner;
  runner.numerics = options.numerics;
  runner.num_workers = options.threads > 0 ? options.threads : NumUsableCores();
  runner.max_seqs = options.max_seqs;
  runner.max_context = options.max_context;
  runner.prefill_rows = options.prefill_rows;
  runner.snapshot_reach = options.prefix_cache_mib > 0 ? kSnapshotReach : 0;
  runner_ = std::make_unique<StepRunner>(*model_, runner);

  const std::vector<CacheLayout>& layouts = runner_->cache().layouts();
  prefix_cache_.emplace(layouts, options.prefix_cache_mib << 20);
  if (options.prefix_cache_mib > 0) {
    prefix_key_ = MakePrefixKey(*model_, options.model_dir, options.numerics);
    snapshot_stride_ = SnapshotStride(config());
  }
  int64_t budget_bytes = options.kv_cache_mib << 20;
  if (budget_bytes == 0) {
    CacheDemand demand;
    demand.bytes_per_sequence = ResidentBytes(layouts, runner_->max_context());
    demand.max_seqs = options.max_seqs;
    demand.other_bytes = ResidentBytes(layouts, runner_->rows_max()) + static_cast<int64_t>(runner_->plans().activation_bytes()) +
                         static_cast<int64_t>(runner_->plans().scratch_bytes()) * runner_->options().num_workers +
                         prefix_cache_->stats().budget_bytes;
    for (const MappedFile& file : model_->checkpoint().files()) demand.other_bytes += static_cast<int64_t>(file.bytes().size());
    budget_bytes = ChooseCacheBudget(demand, QueryAvailableMemory());
  }
  admission_.emplace(layouts, budget_bytes);
}

Ticket Engine::Submit(Request request) {
  const int64_t tokens_max = CheckRequest(
      request, {config().vocab_size, runner_->max_context(), config().max_position_embeddings, tokenizer() != nullptr});
  const int64_t state_bytes = admission_->BytesFor(tokens_max);
  if (state_bytes > admission_->budget_bytes())
    FailRequest(kBadRequest, "{} tokens need {} of caches, the budget has {}: ask for fewer, or raise --kv-cache-mib", tokens_max,
                FormatBytes(state_bytes), FormatBytes(admission_->budget_bytes()));
  if (num_waiting() >= queue_limit_ + static_cast<int64_t>(free_slots_.size()))
    FailRequest(kTooManyRequests, "{} requests are waiting, no more are queued (--queue-limit)", num_waiting());
  const Ticket ticket = next_ticket_++;
  sequences_.push_back(std::make_unique<Sequence>(ticket, std::move(request), tokens_max, tokenizer(), config().vocab_size));
  Sequence& sequence = *sequences_.back();
  sequence.state_bytes = state_bytes;
  sequence.boundaries = {sequence.num_prompt(), snapshot_stride_, 0};
  sequence.usage.prompt_tokens = sequence.num_prompt();
  sequence.submitted_s = clock_();
  return ticket;
}

void Engine::Cancel(Ticket ticket) { cancelled_.push_back(ticket); }

bool Engine::Step(std::vector<Event>& events) {
  now_s_ = clock_();
  EndCancelledAndOverdue(events);
  if (sequences_.empty()) return false;
  FindPrefixes();
  std::vector<ScheduledChunk> chunks = Schedule();
  TSR_CHECK(!chunks.empty(), "{} sequences and none of them could run", sequences_.size());
  for (const ScheduledChunk& chunk : chunks)
    if (chunk.admit) Admit(*sequences_[static_cast<size_t>(chunk.sequence_idx)]);
  PrepareCaches(chunks, events);
  if (!chunks.empty()) {
    RunChunks(chunks);
    now_s_ = clock_();
    CollectResults(chunks, events);
  }
  RemoveEnded();
  return true;
}

void Engine::EndCancelledAndOverdue(std::vector<Event>& events) {
  for (const std::unique_ptr<Sequence>& sequence : sequences_) {
    const double deadline_s = sequence->request.deadline_s;
    if (Contains(cancelled_, sequence->ticket))
      End(*sequence, EndReason::kCancelled, {}, events);
    else if (deadline_s > 0 && now_s_ >= sequence->submitted_s + deadline_s)
      End(*sequence, EndReason::kDeadline, {}, events);
  }
  cancelled_.clear();
  RemoveEnded();
}

// The waiting sequences that could get a slot now begin behind the deepest snapshot their prompts go on from: the scheduler then counts
// only the rows that are left, and Admit restores.
void Engine::FindPrefixes() {
  if (snapshot_stride_ == 0) return;
  prefix_key_.tier = ActiveTier();
  size_t slots_left = free_slots_.size();
  for (const std::unique_ptr<Sequence>& sequence : sequences_) {
    if (sequence->slot >= 0) continue;
    if (slots_left-- == 0) return;
    const PrefixMatch match = prefix_cache_->Find(prefix_key_, sequence->request.prompt_ids);
    sequence->num_processed = match.num_tokens;
    sequence->boundaries.branch = match.shared_tokens / snapshot_stride_ * snapshot_stride_;
  }
}

std::vector<ScheduledChunk> Engine::Schedule() const {
  std::vector<SchedulerSequence> views;
  for (const std::unique_ptr<Sequence>& sequence : sequences_) {
    const int64_t rows = std::min<int64_t>(sequence->pending(), runner_->options().prefill_rows);
    views.push_back({RowsWithinReach(sequence->num_processed, rows, sequence->boundaries), sequence->slot >= 0, sequence->decoding(),
                     sequence->state_bytes});
  }
  return ScheduleStep(views, {runner_->rows_max(), runner_->options().prefill_rows, static_cast<int32_t>(free_slots_.size()),
                              admission_->free_bytes()});
}

void Engine::Admit(Sequence& sequence) {
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  admission_->Reserve(sequence.state_bytes);
  sequence.usage.queue_s = now_s_ - sequence.submitted_s;
}

// Pages for what the chunks write, and in them the state that an admitted sequence begins with. A sequence the host has no memory for ends
// here and leaves the step.
void Engine::PrepareCaches(std::vector<ScheduledChunk>& chunks, std::vector<Event>& events) {
  std::erase_if(chunks, [&](const ScheduledChunk& chunk) {
    Sequence& sequence = *sequences_[static_cast<size_t>(chunk.sequence_idx)];
    try {
      runner_->PopulateAhead({sequence.slot, 0, chunk.num_rows, sequence.num_processed}, sequence.tokens_max);
    } catch (const Error& error) {
      End(sequence, EndReason::kError, error.what(), events);
      return true;
    }
    if (!chunk.admit || sequence.num_processed == 0) return false;
    const PrefixMatch match = prefix_cache_->Restore(prefix_key_, sequence.request.prompt_ids, runner_->cache(), sequence.slot);
    TSR_CHECK(match.num_tokens == sequence.num_processed, "a prefix of {} tokens was found, one of {} restored", sequence.num_processed,
              match.num_tokens);
    sequence.usage.prefix_hit_tokens = match.num_tokens;
    return false;
  });
}

void Engine::RunChunks(const std::vector<ScheduledChunk>& chunks) {
  tessera::Step& step = runner_->step();
  step.Clear();
  for (const ScheduledChunk& chunk : chunks) {
    const Sequence& sequence = *sequences_[static_cast<size_t>(chunk.sequence_idx)];
    const bool reaches_end = chunk.num_rows == sequence.pending();
    step.AddSegment(sequence.slot, sequence.num_processed, sequence.tokens.data() + sequence.num_processed, chunk.num_rows,
                    reaches_end ? 1 : 0);
    // Nothing of a prompt is asked for but what follows its end: rows that cannot reach it leave the pass early.
    if (!sequence.decoding()) SetDepths(config(), BoundariesUpTo(sequence, chunk.num_rows), step);
  }
  runner_->Replay();
}

void Engine::CollectResults(const std::vector<ScheduledChunk>& chunks, std::vector<Event>& events) {
  const View<const float> logits = runner_->logits();
  const tessera::Step& step = runner_->step();
  int64_t logit_row = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    Sequence& sequence = *sequences_[static_cast<size_t>(chunks[i].sequence_idx)];
    const int64_t before = sequence.num_processed;
    sequence.num_processed += chunks[i].num_rows;
    const uint8_t* failed = step.row_failed + step.segments[i].first_row;
    const bool has_logits = sequence.pending() == 0;
    if (std::any_of(failed, failed + step.segments[i].num_rows, [](uint8_t flag) { return flag != 0; })) {
      End(sequence, EndReason::kError, "an Engram table row has a scale byte of 255: the checkpoint is damaged (tessera check --deep)",
          events);
    } else {
      for (int64_t boundary = NextBoundary(before, sequence.boundaries); boundary <= sequence.num_processed;
           boundary = NextBoundary(boundary, sequence.boundaries))
        KeepSnapshot(sequence, boundary);
      if (has_logits) Advance(sequence, {logits.Row(logit_row), static_cast<size_t>(logits.cols)}, events);
    }
    logit_row += has_logits ? 1 : 0;
  }
}

void Engine::KeepSnapshot(const Sequence& sequence, int64_t num_tokens) {
  if (snapshot_stride_ == 0) return;
  const std::span<const int32_t> tokens(sequence.tokens.data(), static_cast<size_t>(num_tokens));
  prefix_cache_->Insert(prefix_key_, tokens, runner_->cache(), sequence.slot, sequence.num_processed);
}

void Engine::Advance(Sequence& sequence, std::span<const float> logits, std::vector<Event>& events) {
  const Request& request = sequence.request;
  const uint64_t position = sequence.tokens.size();
  const std::optional<SampledToken> sampled = Sample(logits, sequence.counts, request.sampling, position, *sampler_scratch_);
  if (!sampled) return End(sequence, EndReason::kError, "the logits hold NaN or no finite value", events);
  const int32_t token_id = sampled->token_id;
  if (sequence.usage.generated_tokens++ == 0) sequence.first_token_s = now_s_;
  sequence.usage.first_token_s = sequence.first_token_s - sequence.submitted_s;
  sequence.usage.decode_s = now_s_ - sequence.first_token_s;

  Event event;
  event.ticket = sequence.ticket;
  event.token_id = token_id;
  if (request.sampling.top_logprobs >= 0)
    event.log_probabilities = TopLogProbabilities(logits, token_id, request.sampling.top_logprobs, *sampler_scratch_);
  const bool ends = Contains(request.stop_ids, token_id) || (!request.ignore_eos && Contains(config().eos_token_ids, token_id));
  if (!ends) {
    sequence.tokens.push_back(token_id);
    if (request.sampling.penalizes()) sequence.counts.Add(token_id);
    event.text = sequence.text.Push(token_id);
  }
  events.push_back(std::move(event));
  if (ends || sequence.text.stopped())
    End(sequence, EndReason::kStop, {}, events);
  else if (static_cast<int64_t>(sequence.tokens.size()) >= sequence.tokens_max)
    End(sequence, EndReason::kLength, {}, events);
}

void Engine::End(Sequence& sequence, EndReason reason, std::string error, std::vector<Event>& events) {
  Event event;
  event.ticket = sequence.ticket;
  event.text = sequence.text.Finish();
  event.end_reason = reason;
  event.error = std::move(error);
  if (sequence.slot >= 0) {
    // An answer that came to its end is what the next turn of a chat begins with; nobody goes on from one that was broken off.
    if (reason == EndReason::kStop || reason == EndReason::kLength) KeepSnapshot(sequence, sequence.num_processed);
    runner_->cache().Release(sequence.slot);
    admission_->Return(sequence.state_bytes);
    free_slots_.push_back(sequence.slot);
    sequence.slot = -1;
  } else {
    sequence.usage.queue_s = now_s_ - sequence.submitted_s;
  }
  sequence.ended = true;
  event.usage = sequence.usage;
  events.push_back(std::move(event));
}

void Engine::RemoveEnded() {
  std::erase_if(sequences_, [](const std::unique_ptr<Sequence>& sequence) { return sequence->ended; });
}

}  // namespace tessera
