// Twin of kernels/topk.h: sorts everything.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/topk.h"

namespace tessera::reference {

// The k best of scores[i] with index i, in order: score descending, index ascending; -0 is +0, NaN and -inf are left out.
inline std::vector<ScoredIndex> TopK(const std::vector<float>& scores, size_t k) {
  std::vector<ScoredIndex> all;
  for (size_t i = 0; i < scores.size(); ++i)
    if (!std::isnan(scores[i]) && scores[i] != -INFINITY) all.push_back({scores[i], static_cast<int32_t>(i)});
  std::stable_sort(all.begin(), all.end(), [](const ScoredIndex& a, const ScoredIndex& b) { return a.score > b.score; });
  if (all.size() > k) all.resize(k);
  return all;
}

}  // namespace tessera::reference
