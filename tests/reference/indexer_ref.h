// Twin of attention/indexer.h for one row: the scores of all visible entries at once, everything sorted.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/topk_ref.h"

namespace tessera::reference {

// The kept indices, ascending.
inline std::vector<int32_t> KeptIndices(const std::vector<float>& scores, int64_t k) {
  std::vector<int32_t> indices;
  for (const ScoredIndex& kept : TopK(scores, static_cast<size_t>(k))) indices.push_back(kept.index);
  std::sort(indices.begin(), indices.end());
  return indices;
}

// Blocks a candidate source publishes: the best by their best entry, the newest always among them.
inline std::vector<int32_t> CandidateBlocks(const std::vector<float>& scores, int64_t block_size, int64_t block_topk) {
  std::vector<float> blocks;
  for (size_t begin = 0; begin < scores.size(); begin += static_cast<size_t>(block_size)) {
    const size_t end = std::min(scores.size(), begin + static_cast<size_t>(block_size));
    blocks.push_back(*std::max_element(scores.begin() + static_cast<int64_t>(begin), scores.begin() + static_cast<int64_t>(end)));
  }
  if (!blocks.empty()) blocks.back() = INFINITY;
  return KeptIndices(blocks, block_topk);
}

// Entries outside the blocks are not there.
inline std::vector<float> RestrictToBlocks(const std::vector<float>& scores, const std::vector<int32_t>& blocks, int64_t block_size) {
  std::vector<float> restricted(scores.size(), -INFINITY);
  for (const int32_t block : blocks)
    for (int64_t entry = block * block_size; entry < std::min<int64_t>((block + 1) * block_size, static_cast<int64_t>(scores.size()));
         ++entry)
      restricted[static_cast<size_t>(entry)] = scores[static_cast<size_t>(entry)];
  return restricted;
}

}  // namespace tessera::reference
