// Chooses the next token from the logits of one row. The draw is a pure function of (logits, what the sequence holds, options, position): a
// request's tokens do not depend on its neighbours, on the batch or on when they were drawn.
//
// The logits are first adjusted, in fp32 and in this order, each where its option is set:
//   logit_bias          is added to the logit of its token; a bias of -100 bans the token (its logit becomes -inf);
//   repetition_penalty  divides a positive logit and multiplies any other, for every token of the prompt or the answer so far;
//   presence_penalty    is subtracted once for every token of the answer so far,
//   frequency_penalty   as often as the answer so far holds the token. The prompt does not count for these two.
// The distribution is then p_i ~ exp(logit_i / temperature), cut down in this order and renormalised at the end:
//   top_k  keeps the k tokens of highest logit (0: all);
//   top_p  keeps, of what is left, the shortest run of most probable tokens whose probabilities (renormalised after top_k) sum to at
//          least top_p; at least one token;
//   min_p  keeps tokens at least min_p times as probable as the most probable one.
// Between equal logits the lower id comes first everywhere. Temperature 0 is greedy: the highest logit, of equals the lower id.
//
// Log probabilities are the model's own: of softmax(logits) before any of the above, so that they say what the model thinks whatever the
// request does to it, and agree with `tessera eval`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/token_counts.h"
#include "kernels/topk.h"

namespace tessera {

constexpr float kBanBias = -100;    // the least bias, and what it means is "never"
constexpr int kTopLogProbsMax = 20;  // as many as the OpenAI interface can ask for

struct LogitBias {
  int32_t token_id = 0;
  float bias = 0;
};

struct SamplingOptions {
  float temperature = 1;
  int top_k = 0;
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
  float repetition_penalty = 1;  // 1: none; above 1 repetition becomes less likely
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<LogitBias> logit_bias;  // at most one per token
  int top_logprobs = -1;              // -1: no log probabilities; n: the drawn token's and the n most probable ones'

  // The draw looks at which tokens the sequence holds.
  bool penalizes() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
};
// What is wrong with the options of a request to a model of `vocab_size` tokens, in one sentence; nullopt when nothing is.
std::optional<std::string> SamplingOptionsError(const SamplingOptions& options, int64_t vocab_size);

struct SampledToken {
  int32_t token_id = 0;
  double probability = 0;  // in the distribution that was drawn from; 1 when greedy
};

// Room for one Sample or TopLogProbabilities at a time over up to vocab_size logits; neither allocates anything.
struct SamplerScratch {
  explicit SamplerScratch(int64_t vocab_size);
  std::vector<float> adjusted;
  std::vector<double> weights;
  std::vector<ScoredIndex> list;
  std::vector<int32_t> ids;
};

// `counts` are the tokens the sequence holds (read only when the options penalize), `position` is the position of the sampled token in its
// sequence. nullopt, an error of that request alone, when an adjusted logit is NaN or +inf or all are -inf (-inf masks a token). The
// options have passed SamplingOptionsError.
std::optional<SampledToken> Sample(std::span<const float> logits, const TokenCounts& counts, const SamplingOptions& options,
                                   uint64_t position, SamplerScratch& scratch) noexcept;

struct TokenLogProbability {
  int32_t token_id = 0;
  double log_probability = 0;
};
struct LogProbabilities {
  double drawn = 0;  // of the token that was drawn
  int num_top = 0;   // fewer than asked for when the vocabulary has no more, or no more that are possible
  std::array<TokenLogProbability, kTopLogProbsMax> top;  // descending, of equals the lower id first
};

// ln softmax(logits)[token_id] in double; NaN when a logit is NaN or +inf or all are -inf.
double LogProbability(std::span<const float> logits, int32_t token_id) noexcept;
// The same for the drawn token and the `num_top` <= kTopLogProbsMax most probable ones. `logits` have a distribution.
LogProbabilities TopLogProbabilities(std::span<const float> logits, int32_t token_id, int num_top, SamplerScratch& scratch) noexcept;

}  // namespace tessera
