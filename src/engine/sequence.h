// A request and how far it has come.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "engine/text_stream.h"

namespace tessera {

using Ticket = uint64_t;

struct Request {
  std::vector<int32_t> prompt_ids;
  SamplingOptions sampling;
  int64_t max_tokens = 128;  // new tokens; cut to what the context has left
  bool ignore_eos = false;
  std::vector<std::string> stop;  // strings that end the answer, not part of it
};

enum class EndReason : uint8_t { kNone, kStop, kLength, kCancelled, kError };
const char* EndReasonName(EndReason reason);  // "stop", "length", "cancelled", "error"

// What a step did to one request.
struct Event {
  Ticket ticket = 0;
  int32_t token_id = -1;  // the token it generated, -1 when none
  std::string text;       // text that became final
  EndReason end_reason = EndReason::kNone;
  std::string error;  // one line, with kError
};

struct Sequence {
  Sequence(Ticket ticket, Request request, int64_t tokens_max, const Tokenizer* tokenizer)
      : ticket(ticket),
        request(std::move(request)),
        tokens(this->request.prompt_ids),
        tokens_max(tokens_max),
        text(tokenizer, this->request.stop) {
    tokens.reserve(static_cast<size_t>(tokens_max));
  }

  Ticket ticket;
  Request request;
  std::vector<int32_t> tokens;  // prompt, then what was generated
  int64_t tokens_max;           // prompt and new tokens together
  int64_t num_processed = 0;    // tokens whose state is in the caches
  int32_t slot = -1;            // caches, -1 while queued
  TextStream text;

  int64_t num_prompt() const { return static_cast<int64_t>(request.prompt_ids.size()); }
  int64_t pending() const { return static_cast<int64_t>(tokens.size()) - num_processed; }
  bool decoding() const { return num_processed >= num_prompt(); }
};

}  // namespace tessera
