// Attention of a step's rows: every row sees its window (the last sliding_window positions, itself included) and, where the layer has
// compressed entries, the selected or all visible ones in addition. The rows are decoded once for all heads of a work item.
#pragma once

#include <cstdint>

#include "attention/kv_cache.h"
#include "attention/kv_row.h"
#include "core/step.h"
#include "core/threads.h"
#include "core/view.h"

namespace tessera {

template <class T>
struct SparseAttentionArguments {
  const Step* step = nullptr;
  RowList rows;
  int num_heads = 0;
  View<const T> q;            // [max_rows, num_heads * head_dim], rotated
  int64_t window_tokens = 0;  // sliding_window
  RowStore window;
  KvRowLayout window_layout;
  RowStore compressed;  // not present(): window only
  KvRowLayout compressed_layout;
  int ratio = 0;
  const int32_t* selected = nullptr;         // [max_rows, selected_stride] ascending entries; null: all visible entries
  const int32_t* selected_counts = nullptr;  // [max_rows]
  int64_t selected_stride = 0;
  const float* sink = nullptr;  // [num_heads]
  bool round_probabilities = false;
  View<const float> cos, sin;  // [max_rows, rope_dims / 2] of the rows' positions, for the rotation back
  View<T> out;                 // [max_rows, num_heads * head_dim], rotated back
};

// Entries a row can see at most, and the worker scratch for them.
template <class T>
int64_t SparseAttentionScratchBytes(int64_t head_dim, int64_t num_entries_max);

template <class T>
void AttendRows(const SparseAttentionArguments<T>& arguments, const WorkerContext& worker) noexcept;

}  // namespace tessera
