// Twin of engine/sampler.h: sorts the whole vocabulary, keeps the distribution in long double.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "engine/sampler.h"

namespace tessera::reference {

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
