#include "kernels/ngram_hash.h"

#include "core/check.h"

namespace tessera {

void NgramRows(const NgramHashParameters& parameters, const int32_t* window, int64_t* rows) noexcept {
  TSR_CHECK(parameters.max_ngram_size >= 2 && parameters.max_ngram_size <= kNgramSizeMax, "n-grams of up to {} tokens",
            parameters.max_ngram_size);
  bool blocked = false;
  int64_t hash = 0;
  int64_t column = 0;
  for (int s = 0; s < parameters.max_ngram_size; ++s) {
    blocked = blocked || window[s] == kDeadTokenId;
    const int64_t id = blocked ? parameters.pad_id : window[s];
    hash ^= id * parameters.multipliers[s];
    if (s == 0) continue;
    for (int head = 0; head < parameters.num_heads; ++head, ++column)
      rows[column] = hash % parameters.primes[column] + parameters.offsets[column];
  }
}

}  // namespace tessera
