// Constants of Engram's n-gram hash (spec/model.md section 8.2), which a checkpoint does not store: per layer the multipliers of the token
// ids, the prime modulus of each (order, head) and where that head's rows begin in the layer's table.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

struct EngramHashConfig {
  std::vector<int64_t> layer_ids;  // engram_layer_ids
  int max_ngram_size = 0;          // engram_max_ngram_size: orders 2 to this
  int n_heads = 0;                 // engram_n_heads, per order
  int64_t engram_vocab_size = 0;
  int64_t compressed_vocab_size = 0;
};

struct EngramLayerHash {
  std::vector<int64_t> multipliers;  // [max_ngram_size], odd
  std::vector<int64_t> primes;       // [(max_ngram_size - 1) * n_heads], order-major
  std::vector<int64_t> offsets;      // the sum of the primes before each
  int64_t table_rows = 0;            // the sum of all; equals the layer's engram_num_embeddings
};

// One entry per layer id, in their order (the primes are consecutive ones from engram_vocab_size on, across layers). Throws Error naming
// the field whose value no model can have.
std::vector<EngramLayerHash> EngramHashes(const EngramHashConfig& config);

}  // namespace tessera
