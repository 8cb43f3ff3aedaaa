// Whether a request could ever run, decided at the door: the engine behind it takes every field as true.
#pragma once

#include <cstdint>

#include "engine/sequence.h"

namespace tessera {

constexpr int64_t kDefaultMaxTokens = 4096;  // new tokens of a request that does not say how many
constexpr size_t kStopTextsMax = 64;         // every token of an answer is compared with each of them
constexpr size_t kStopTextBytesMax = 4096;

struct RequestLimits {
  int64_t vocab_size = 0;
  int64_t max_context = 0;    // tokens a sequence may have
  int64_t max_positions = 0;  // the model's, for the message
  bool has_tokenizer = false;
};

// Prompt and new tokens together that the request may reach. Throws RequestError (400) naming the field and its value.
int64_t CheckRequest(const Request& request, const RequestLimits& limits);

}  // namespace tessera
