// Exact top-k by (score descending, index ascending). -0 counts as +0; -inf and NaN are never kept. Because the order is total, the kept
// set does not depend on how the scores were cut into stretches.
#pragma once

#include <cstdint>

namespace tessera {

struct ScoredIndex {
  float score;
  int32_t index;
};

// Adds (scores[i], first_index + i), i < num_scores, to list[0, count) and keeps the k best, in no particular order. Returns the new count
// (<= k). `list` has room for k + num_scores entries.
int64_t KeepTopK(ScoredIndex* list, int64_t count, const float* scores, int64_t num_scores, int32_t first_index, int64_t k) noexcept;
// The same for scored entries that carry their own indices.
int64_t KeepTopK(ScoredIndex* list, int64_t count, const ScoredIndex* more, int64_t num_more, int64_t k) noexcept;

// Indices of list[0, count) ascending.
void SortedIndices(ScoredIndex* list, int64_t count, int32_t* indices) noexcept;

}  // namespace tessera
