// Attention of one token's heads over given rows, keys = values, with a sink in the denominator (spec/model.md section 5.6):
// s_i = scale * (q . kv_i), o = sum_i exp(s_i - m) kv_i / (sum_i exp(s_i - m) + exp(sink - m)), m = max_i s_i.
// Every sum over entries runs in the order of the rows; every dot in a fixed order of columns. So an output depends on its own query and
// the rows alone, not on how heads are divided over workers.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"

namespace tessera {

// Heads that share one pass over the rows: two AVX-512 registers of lanes, so that a kv value is widened once for 32 products.
constexpr int64_t kAttendBlockHeads = 32;
// Columns of the output whose fp32 sums are kept in scratch while the rows are read block by block.
constexpr int64_t kAttendChunkCols = 512;

template <class T>
struct AttendArguments {
  View<const T> q;      // [num_heads, head_dim]
  View<const T> kv;     // [num_entries, head_dim], num_entries >= 1
  const float* sink;    // [num_heads]
  float scale = 1;
  bool round_probabilities = false;  // --numerics reference: exp(s - m) rounded to bf16 for the sum over kv, not in the denominator
  View<T> out;          // [num_heads, head_dim], one rounding; may be q
  float* scratch;       // AttendScratchFloats(num_entries), private to the caller
};
constexpr int64_t AttendScratchFloats(int64_t num_entries) { return kAttendBlockHeads * (num_entries + kAttendChunkCols); }

template <class T>
void Attend(const AttendArguments<T>& arguments) noexcept;

}  // namespace tessera
