// A request, what its sender hears of it, and how far it has come.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/boundaries.h"
#include "engine/sampler.h"
#include "engine/text_stream.h"
#include "engine/token_counts.h"

namespace tessera {

using Ticket = uint64_t;

struct Request {
  std::vector<int32_t> prompt_ids;
  SamplingOptions sampling;
  int64_t max_tokens = 0;  // new tokens, cut to what the context has left; 0: as many as that, at most kDefaultMaxTokens
  bool ignore_eos = false;
  std::vector<std::string> stop;  // texts that end the answer, not part of it
  std::vector<int32_t> stop_ids;  // tokens that end the answer like the end token, also when that one is ignored
  double deadline_s = 0;          // seconds from submission after which it ends where it is, queued or running; 0: none
};

enum class EndReason : uint8_t { kNone, kStop, kLength, kCancelled, kDeadline, kError };
const char* EndReasonName(EndReason reason);  // "stop", "length", "cancelled", "deadline", "error"

// What a request took. Times are in seconds on the engine's clock.
struct Usage {
  int64_t prompt_tokens = 0;
  int64_t prefix_hit_tokens = 0;  // of the prompt, not computed again
  int64_t generated_tokens = 0;   // with the token that ended the answer
  double queue_s = 0;             // from submission to the first step that held it, or to its end
  double first_token_s = 0;       // from submission to its first token; 0 when there was none
  double decode_s = 0;            // from the first token to the last
};

// What a step did to one request.
struct Event {
  Ticket ticket = 0;
  int32_t token_id = -1;  // the token it generated, -1 when none
  std::string text;       // text that became final
  EndReason end_reason = EndReason::kNone;
  std::string error;                                  // one line, with kError
  std::optional<LogProbabilities> log_probabilities;  // with a token, when asked for
  Usage usage;                                        // with the end
};

struct Sequence {
  Sequence(Ticket ticket, Request request_in, int64_t tokens_max, const Tokenizer* tokenizer, int64_t vocab_size)
      : ticket(ticket),
        request(std::move(request_in)),
        tokens(request.prompt_ids),
        tokens_max(tokens_max),
        text(tokenizer, request.stop) {
    tokens.reserve(static_cast<size_t>(tokens_max));
    if (request.sampling.penalizes()) counts = TokenCounts(request.prompt_ids, tokens_max - num_prompt(), vocab_size);
  }

  Ticket ticket;
  Request request;
  std::vector<int32_t> tokens;  // prompt, then what was generated and belongs to the answer
  int64_t tokens_max;           // prompt and new tokens together
  int64_t num_processed = 0;    // tokens whose state is in the caches
  int32_t slot = -1;            // caches, -1 while queued
  Boundaries boundaries;         // where its state is snapshotted
  int64_t state_bytes = 0;      // of caches, reserved while it has a slot
  TokenCounts counts;           // empty unless the sampling options penalize
  TextStream text;
  bool ended = false;
  Usage usage;
  double submitted_s = 0;
  double first_token_s = 0;  // times on the engine's clock; meaningful once usage.generated_tokens > 0

  int64_t num_prompt() const { return static_cast<int64_t>(request.prompt_ids.size()); }
  int64_t pending() const { return static_cast<int64_t>(tokens.size()) - num_processed; }
  bool decoding() const { return num_processed >= num_prompt(); }
};

}  // namespace tessera
