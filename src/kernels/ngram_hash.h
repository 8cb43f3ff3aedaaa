// Row ids of the Engram tables from compressed token ids (spec/model.md section 8.3). Products fit in 63 bits, so all is exact.
#pragma once

#include <cstdint>

namespace tessera {

constexpr int kNgramSizeMax = 8;
constexpr int32_t kDeadTokenId = -1;  // an image-span position, or one before the start: blocks itself and everything older

struct NgramHashParameters {
  int max_ngram_size = 0;               // N
  int num_heads = 0;                    // per order
  const int64_t* multipliers = nullptr; // [N]
  const int64_t* primes = nullptr;      // [(N - 1) * num_heads], order-major
  const int64_t* offsets = nullptr;     // [(N - 1) * num_heads]
  int32_t pad_id = 0;                   // compressed id that stands for a blocked position
};
// window[s] = compressed id at distance s into the past (s = 0 is the token itself), kDeadTokenId where there is none; s < N.
// rows: [(N - 1) * num_heads], orders 2..N, heads inside.
void NgramRows(const NgramHashParameters& parameters, const int32_t* window, int64_t* rows) noexcept;

}  // namespace tessera
