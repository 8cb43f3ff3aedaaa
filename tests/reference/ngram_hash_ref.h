// Slow twin of kernels/ngram_hash: the rows of one position from the whole sequence of compressed ids, in 128-bit integers.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::testing {

struct NgramRefConstants {
  std::vector<int64_t> multipliers, primes, offsets;
  int64_t heads = 0, pad = 0;
};

// ids[p] < 0 marks a dead position.
inline std::vector<int64_t> NgramRowsRef(const NgramRefConstants& constants, const std::vector<int32_t>& ids, int64_t position) {
  std::vector<int64_t> rows;
  __int128 hash = 0;
  bool blocked = false;
  for (size_t s = 0; s < constants.multipliers.size(); ++s) {
    const int64_t p = position - static_cast<int64_t>(s);
    if (p < 0 || ids[static_cast<size_t>(p)] < 0) blocked = true;
    const __int128 id = blocked ? constants.pad : ids[static_cast<size_t>(p)];
    hash ^= id * constants.multipliers[s];
    for (int64_t head = 0; s > 0 && head < constants.heads; ++head) {
      const size_t column = rows.size();
      rows.push_back(static_cast<int64_t>(hash % constants.primes[column]) + constants.offsets[column]);
    }
  }
  return rows;
}

}  // namespace tessera::testing
