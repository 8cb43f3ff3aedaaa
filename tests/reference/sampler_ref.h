// Twin of engine/sampler.h: adjusts logits from the token lists themselves, sorts the whole vocabulary, keeps the distribution in long
// double.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "engine/sampler.h"

namespace tessera::reference {

// The logits after bias and penalties, in fp32 like the product's: this part must agree to the bit.
inline std::vector<float> AdjustedLogits(std::vector<float> logits, const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer,
                                         const SamplingOptions& options) {
  for (size_t id = 0; id < logits.size(); ++id) {
    float& logit = logits[id];
    for (const LogitBias& bias : options.logit_bias)
      if (static_cast<size_t>(bias.token_id) == id) logit = bias.bias <= -100 ? -INFINITY : logit + bias.bias;
    const auto in_answer = std::count(answer.begin(), answer.end(), static_cast<int32_t>(id));
    if (std::count(prompt.begin(), prompt.end(), static_cast<int32_t>(id)) + in_answer > 0)
      logit = logit < 0 ? logit * options.repetition_penalty : logit / options.repetition_penalty;
    if (in_answer > 0) logit = logit - options.presence_penalty;
    logit = logit - options.frequency_penalty * static_cast<float>(in_answer);
  }
  return logits;
}

// ln softmax of every token.
inline std::vector<long double> LogSoftmax(const std::vector<float>& logits) {
  const long double max = *std::max_element(logits.begin(), logits.end());
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit) - max);
  std::vector<long double> result;
  for (const float logit : logits) result.push_back(static_cast<long double>(logit) - max - std::log(sum));
  return result;
}

// Probability of every token that is kept, by id.
inline std::map<int32_t, long double> Distribution(const std::vector<float>& logits, const SamplingOptions& options) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] != -INFINITY) order.push_back(static_cast<int32_t>(i));
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0 && order.size() > static_cast<size_t>(options.top_k)) order.resize(options.top_k);
  const auto weight = [&](int32_t id) {
    return std::exp((static_cast<long double>(logits[id]) - logits[order[0]]) / static_cast<long double>(options.temperature));
  };
  long double total = 0, cumulative = 0;
  for (int32_t id : order) total += weight(id);
  size_t num_kept = 0;
  while (num_kept < order.size() && (num_kept == 0 || cumulative < options.top_p * total)) cumulative += weight(order[num_kept++]);
  if (options.top_p == 1) num_kept = order.size();
  std::map<int32_t, long double> kept;
  total = 0;
  for (size_t i = 0; i < num_kept; ++i)
    if (weight(order[i]) >= options.min_p) total += kept[order[i]] = weight(order[i]);
  for (auto& [id, probability] : kept) probability /= total;
  return kept;
}

}  // namespace tessera::reference
