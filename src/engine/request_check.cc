#include "engine/request_check.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace tessera {
namespace {

constexpr int kBadRequest = 400;

void CheckStops(const Request& request, const RequestLimits& limits) {
  if (!request.stop.empty() && !limits.has_tokenizer) FailRequest(kBadRequest, "stop: the model has no tokenizer, so answers have no text");
  if (request.stop.size() > kStopTextsMax)
    FailRequest(kBadRequest, "stop: {} texts, at most {} are compared with an answer", request.stop.size(), kStopTextsMax);
  for (const std::string& text : request.stop) {
    if (text.empty()) FailRequest(kBadRequest, "stop: an empty text ends every answer");
    if (text.size() > kStopTextBytesMax) FailRequest(kBadRequest, "stop: a text of {} bytes, at most {}", text.size(), kStopTextBytesMax);
  }
  for (const int32_t id : request.stop_ids)
    if (id < 0 || id >= limits.vocab_size) FailRequest(kBadRequest, "stop_ids: {} is outside the vocabulary of {}", id, limits.vocab_size);
}

}  // namespace

int64_t CheckRequest(const Request& request, const RequestLimits& limits) {
  const auto num_prompt = static_cast<int64_t>(request.prompt_ids.size());
  if (num_prompt == 0) FailRequest(kBadRequest, "the prompt has no token ids");
  for (size_t i = 0; i < request.prompt_ids.size(); ++i)
    if (request.prompt_ids[i] < 0 || request.prompt_ids[i] >= limits.vocab_size)
      FailRequest(kBadRequest, "prompt id {} at position {} is outside the vocabulary of {}", request.prompt_ids[i], i, limits.vocab_size);
  if (request.max_tokens < 0) FailRequest(kBadRequest, "max_tokens {} is negative", request.max_tokens);
  if (num_prompt >= limits.max_context)
    FailRequest(
        kBadRequest,
        "the prompt has {} tokens, the context holds {} with at least one new token (--max-context; the model has positions for {})",
        num_prompt, limits.max_context, limits.max_positions);
  if (const std::optional<std::string> problem = SamplingOptionsError(request.sampling, limits.vocab_size))
    FailRequest(kBadRequest, "{}", *problem);
  CheckStops(request, limits);
  if (!(request.deadline_s >= 0) || !std::isfinite(request.deadline_s))
    FailRequest(kBadRequest, "a deadline of {} seconds is no time from now", request.deadline_s);
  return num_prompt + std::min(request.max_tokens > 0 ? request.max_tokens : kDefaultMaxTokens, limits.max_context - num_prompt);
}

}  // namespace tessera
