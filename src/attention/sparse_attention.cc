#include "attention/sparse_attention.h"

#include <algorithm>
#include <cmath>

#include "attention/indexer.h"
#include "core/scratch.h"
#include "kernels/attend.h"
#include "kernels/rope.h"

namespace tessera {
namespace {

// Decodes what `row` sees into kv: window positions ascending, then compressed entries ascending. Returns the number of entries.
template <class T>
int64_t GatherEntries(const SparseAttentionArguments<T>& arguments, int64_t row, T* kv) noexcept {
  const Step& step = *arguments.step;
  const int32_t slot = step.slot[row];
  const int64_t position = step.position[row];
  const int64_t head_dim = arguments.window_layout.head_dim;
  int64_t count = 0;
  for (int64_t seen = std::max<int64_t>(0, position - arguments.window_tokens + 1); seen <= position; ++seen)
    DecodeKvRow(arguments.window_layout, arguments.window.RingRow(slot, seen), kv + head_dim * count++);
  if (!arguments.compressed.present()) return count;
  const bool all = arguments.selected == nullptr;
  const int64_t num_entries = all ? (position + 1) / arguments.ratio : arguments.selected_counts[row];
  const int32_t* selected = all ? nullptr : arguments.selected + row * arguments.selected_stride;
  for (int64_t i = 0; i < num_entries; ++i)
    DecodeKvRow(arguments.compressed_layout, arguments.compressed.Row(slot, all ? i : selected[i]), kv + head_dim * count++);
  return count;
}

}  // namespace

template <class T>
int64_t SparseAttentionScratchBytes(int64_t head_dim, int64_t num_entries_max) {
  ScratchCutter cut(nullptr);
  cut.Take<T>(head_dim * num_entries_max);
  cut.Take<float>(AttendScratchFloats(num_entries_max));
  return cut.used_bytes();
}

template <class T>
void AttendRows(const SparseAttentionArguments<T>& arguments, const WorkerContext& worker) noexcept {
  const int64_t head_dim = arguments.window_layout.head_dim;
  const int64_t rope_dims = arguments.window_layout.rope_dims;
  const int64_t parts = std::min<int64_t>(PartsPerRow(arguments.rows.size(), worker.num_workers), arguments.num_heads);
  const Range items = worker.PartOf(arguments.rows.size() * parts);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t row = arguments.rows[item / parts];
    const Range heads = PartOf(arguments.num_heads, static_cast<int>(item % parts), static_cast<int>(parts));
    T* kv = reinterpret_cast<T*>(worker.scratch);
    const int64_t num_entries = GatherEntries(arguments, row, kv);
    ScratchCutter cut(worker.scratch);
    cut.Take<T>(head_dim * num_entries);
    const int64_t num_heads = heads.end - heads.begin;
    T* out = arguments.out.Row(row) + heads.begin * head_dim;
    AttendArguments<T> attend;
    attend.q = MakeView(arguments.q.Row(row) + heads.begin * head_dim, num_heads, head_dim);
    attend.kv = MakeView<const T>(kv, num_entries, head_dim);
    attend.sink = arguments.sink + heads.begin;
    attend.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    attend.round_probabilities = arguments.round_probabilities;
    attend.out = MakeView(out, num_heads, head_dim);
    attend.scratch = cut.Take<float>(AttendScratchFloats(num_entries));
    Attend(attend);
    for (int64_t head = 0; head < num_heads; ++head)
      RotateInterleaved(out + (head + 1) * head_dim - rope_dims, arguments.cos.Row(row), arguments.sin.Row(row), rope_dims, true);
  }
}

template int64_t SparseAttentionScratchBytes<float>(int64_t, int64_t);
template int64_t SparseAttentionScratchBytes<bf16>(int64_t, int64_t);
template void AttendRows<float>(const SparseAttentionArguments<float>&, const WorkerContext&) noexcept;
template void AttendRows<bf16>(const SparseAttentionArguments<bf16>&, const WorkerContext&) noexcept;

}  // namespace tessera
