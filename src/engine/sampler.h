// Chooses the next token from the logits of one row. The draw is a pure function of (logits, options, position): a request's tokens do not
// depend on its neighbours, on the batch or on when they were drawn.
//
// The distribution is p_i ~ exp(logit_i / temperature), cut down in this order and renormalised at the end:
//   top_k  keeps the k tokens of highest logit (0: all);
//   top_p  keeps, of what is left, the shortest run of most probable tokens whose probabilities (renormalised after top_k) sum to at
//          least top_p; at least one token;
//   min_p  keeps tokens at least min_p times as probable as the most probable one.
// Between equal logits the lower id comes first everywhere. Temperature 0 is greedy: the highest logit, of equals the lower id.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/topk.h"

namespace tessera {

struct SamplingOptions {
  float temperature = 1;
  int top_k = 0;
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
};
// What is wrong with the options of a request, in one sentence; nullopt when nothing is.
std::optional<std::string> SamplingOptionsError(const SamplingOptions& options);

struct SampledToken {
  int32_t token_id = 0;
  double probability = 0;  // in the distribution that was drawn from; 1 when greedy
};

// Room for one Sample at a time over up to vocab_size logits; Sample itself allocates nothing.
struct SamplerScratch {
  explicit SamplerScratch(int64_t vocab_size);
  std::vector<double> weights;
  std::vector<ScoredIndex> list;
  std::vector<int32_t> ids;
};

// `position` is the position of the sampled token in its sequence. nullopt, an error of that request alone, when a logit is NaN or +inf or
// all are -inf (-inf masks a token). The options have passed SamplingOptionsError.
std::optional<SampledToken> Sample(std::span<const float> logits, const SamplingOptions& options, uint64_t position,
                                   SamplerScratch& scratch) noexcept;

// ln softmax(logits)[token_id] in double; NaN where Sample would return nullopt.
double LogProbability(std::span<const float> logits, int32_t token_id) noexcept;

}  // namespace tessera
