// Scores of the sparse-attention indexer over a stretch of keys (spec/model.md sections 5.5 and 6.5):
// score(j) = sum_h a[h] * relu(iq_h . k_j), heads ascending, fp32. Keys are stored as Q4 codes: to the matrix kernel they are E2M1 weights
// with one scale per 32 columns, so a stretch is one small matrix product and the same K order as everywhere.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/quant_view.h"

namespace tessera {

struct IndexScoreArguments {
  const void* packed_queries = nullptr;  // PackActivations<bf16>(queries [num_heads, index_head_dim], format E2M1)
  int64_t num_heads = 0;
  const float* head_weights = nullptr;   // a [num_heads]
  QuantView keys;                        // E2M1 [num_entries, index_head_dim], block 1 x 32
  bool round = false;                    // --numerics reference: dot, product with a and sum are each rounded to bf16
  float* scores = nullptr;               // [num_entries]
  void* scratch = nullptr;               // IndexScoreScratchBytes, 64-byte aligned
};
int64_t IndexScoreScratchBytes(int64_t num_heads, int64_t num_entries_max, int64_t index_head_dim);
void IndexScore(const IndexScoreArguments& arguments) noexcept;

}  // namespace tessera
