// Attention, phase by phase (spec/model.md sections 5 and 6): projections, window rows, queries and compressed entries, selection, output.
#include <algorithm>
#include <cmath>

#include "attention/sparse_attention.h"
#include "core/check.h"
#include "core/scratch.h"
#include "kernels/convert.h"
#include "kernels/hadamard.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "model/forward_builder.h"
#include "model/op_costs.h"

namespace tessera {
namespace {

constexpr int64_t kEntriesAtOnce = 16;  // V4.1 latents whose index keys are one small product: a full register tile of rows

// Appends compressed entries and their index keys to a slot's caches.
template <class T>
struct EntryArguments {
  const Step* step;
  bool v41;
  int64_t rope_dims;
  const float* frequencies;
  float eps;

  CompressorShape pool;
  CompressorInputs inputs;
  RowStore pending;
  const bf16* norm;
  KvRowLayout layout;
  RowStore entries;
  View<const T> latent;  // V4.1 ratio 1: nothing is pooled, the row is the entry

  // Index keys: V4 pools them like entries, V4.1 derives them from the latent.
  bool has_keys;
  CompressorShape key_pool;
  CompressorInputs key_inputs;
  RowStore key_pending;
  const bf16* key_norm;
  QuantView key_weight;
  int64_t key_dim;
  RowStore key_codes, key_scales;

  int64_t ScratchBytes() const {
    ScratchCutter cut(nullptr);
    cut.Take<T>(kEntriesAtOnce * layout.head_dim);
    cut.Take<T>(kEntriesAtOnce * key_dim);
    cut.Take<uint8_t>(PackedBytes<T>(Format::kBF16, kEntriesAtOnce, layout.head_dim));
    cut.Take<uint8_t>(MatMulScratchBytes(layout.head_dim));
    return cut.used_bytes();
  }

  // V4.1 multiplies the latents of the entries that are completed; the sums of a pool are no products with weights.
  OpCost Cost() const noexcept { return has_keys && v41 ? MatMulCost(key_weight, NumCompletedEntries(*step, pool.ratio)) : OpCost{}; }

  void Rotate(T* vector, int64_t dim, int64_t entry_idx) const noexcept {
    float cos[kRopeDimsMax / 2], sin[kRopeDimsMax / 2];
    RopeCosSin(entry_idx * pool.ratio, frequencies, rope_dims, cos, sin);
    RotateInterleaved(vector + dim - rope_dims, cos, sin, rope_dims, false);
  }

  void StoreKey(T* key, const CompletedEntry& entry) const noexcept {
    RmsNorm(key, key_norm, eps, key_dim, key);
    Rotate(key, key_dim, entry.entry_idx);
    if (!v41) Hadamard(key, key_dim);
    const int32_t slot = entry.segment->slot;
    QuantizeQ4(key, key_dim, 32, key_codes.Row(slot, entry.entry_idx), key_scales.Row(slot, entry.entry_idx));
  }

  void Run(const WorkerContext& worker) const noexcept {
    const Range mine = worker.PartOf(NumCompletedEntries(*step, pool.ratio));
    ScratchCutter cut(worker.scratch);
    T* vectors = cut.Take<T>(kEntriesAtOnce * layout.head_dim);
    T* keys = cut.Take<T>(kEntriesAtOnce * key_dim);
    uint8_t* packed = cut.Take<uint8_t>(PackedBytes<T>(Format::kBF16, kEntriesAtOnce, layout.head_dim));
    uint8_t* matmul = cut.Take<uint8_t>(MatMulScratchBytes(layout.head_dim));
    for (int64_t begin = mine.begin; begin < mine.end; begin += kEntriesAtOnce) {
      const int64_t count = std::min(kEntriesAtOnce, mine.end - begin);
      const View<T> block = MakeView(vectors, count, layout.head_dim);
      for (int64_t i = 0; i < count; ++i) {
        const CompletedEntry entry = FindCompletedEntry(*step, pool.ratio, begin + i);
        const int64_t row = entry.segment->first_row + entry.entry_idx - entry.segment->start_pos;
        const T* pooled = block.Row(i);
        if (latent.data != nullptr)
          pooled = latent.Row(row);
        else
          PoolCompletedEntry<T>(pool, inputs, pending, entry, block.Row(i));
        RmsNorm(pooled, norm, eps, layout.head_dim, block.Row(i));
      }
      if (has_keys && v41) {
        PackActivations<T>(block, nullptr, count, key_weight.format, packed);
        MatMulPacked<T, T>(packed, count, key_weight, MakeView(keys, count, key_dim), matmul);
      }
      for (int64_t i = 0; i < count; ++i) {
        const CompletedEntry entry = FindCompletedEntry(*step, pool.ratio, begin + i);
        T* key = keys + i * key_dim;
        if (has_keys && !v41) PoolCompletedEntry<T>(key_pool, key_inputs, key_pending, entry, key);
        if (has_keys) StoreKey(key, entry);
        Rotate(block.Row(i), layout.head_dim, entry.entry_idx);
        EncodeKvRow<T>(layout, block.Row(i), entries.Row(entry.segment->slot, entry.entry_idx));
      }
    }
  }
};

// logits[c] += ape[position mod ratio][c]
void AddPositionBias(const float* ape, int64_t position, int ratio, int64_t cols, float* logits) noexcept {
  const float* bias = ape + position % ratio * cols;
  for (int64_t i = 0; i < cols; ++i) logits[i] += bias[i];
}

// Norms and window row of the rows that enter a layer, and what else of their projections is elementwise.
template <class T>
struct WindowArguments {
  const Step* step;
  RowList rows;
  int32_t layer_idx;
  View<T> q_lora, kv;
  const bf16* q_norm;
  const bf16* kv_norm;
  float eps;
  View<const float> cos, sin;
  int64_t rope_dims;
  KvRowLayout layout;
  RowStore window;
  int ratio;
  const float* ape;
  View<float> pool_logits;
  const float* index_ape;
  View<float> index_pool_logits;
  View<const T> index_weights_raw;
  View<float> index_weights;
  float index_scale;

  void RunRow(int64_t row) const noexcept {
    const int64_t position = step->position[row];
    T* vector = kv.Row(row);
    RmsNorm(vector, kv_norm, eps, kv.cols, vector);
    RotateInterleaved(vector + kv.cols - rope_dims, cos.Row(row), sin.Row(row), rope_dims, false);
    EncodeKvRow<T>(layout, vector, window.RingRow(step->slot[row], position));
    if (ape != nullptr) AddPositionBias(ape, position, ratio, pool_logits.cols, pool_logits.Row(row));
    if (index_ape != nullptr) AddPositionBias(index_ape, position, ratio, index_pool_logits.cols, index_pool_logits.Row(row));
    if (step->depth[row] <= layer_idx) return;  // the row ends here: it has no queries
    RmsNorm(q_lora.Row(row), q_norm, eps, q_lora.cols, q_lora.Row(row));
    for (int64_t head = 0; head < index_weights.cols; ++head)
      index_weights.Row(row)[head] = ToFloat(FromFloat<T>(ToFloat(index_weights_raw.Row(row)[head]) * index_scale));
  }
};

// The columns of a buffer that a layer with narrower vectors uses.
template <class U>
View<U> Narrow(View<U> view, int64_t cols) {
  return {view.data, view.rows, cols, view.stride};
}

}  // namespace

template <class T>
CompressorShape ForwardBuilder<T>::PoolShape(const AttentionShape& shape, int64_t width) const {
  return {shape.ratio, !v41_ && shape.has_indexer, width};
}

template <class T>
void ForwardBuilder<T>::ProjectInputs(const AttentionShape& shape) {
  const LayerWeights& w = layer(shape.layer_idx);
  const RowList entering = Entering(shape.layer_idx), passing = Passing(shape.layer_idx);
  const View<const T> quantized = QuantizedInput(kRegionQueryKey, entering, a_.x);
  const View<const T> x = a_.x;
  std::vector<Linear<T>> linears = {{passing, w.wq_a, quantized, a_.q_lora, {}}, {entering, w.wkv, quantized, a_.kv, {}}};
  if (shape.owns_entries && v41_ && shape.ratio == 1) {
    linears.push_back({entering, w.compressor.wkv, x, a_.latent, {}});
  } else if (shape.owns_entries) {
    const int64_t width = PoolShape(shape, config_.head_dim).vector_width();
    linears.push_back({entering, w.compressor.wkv, x, {}, Narrow(a_.pool_values, width)});
    linears.push_back({entering, w.compressor.wgate, x, {}, Narrow(a_.pool_logits, width)});
  }
  if (shape.has_indexer) {
    if (!v41_) {
      linears.push_back({entering, w.index_compressor.wkv, x, {}, a_.index_pool_values});
      linears.push_back({entering, w.index_compressor.wgate, x, {}, a_.index_pool_logits});
    }
    linears.push_back({passing, w.index_weights_proj, x, a_.index_weights_raw, {}});
  }
  EmitLinears<T>(builder_, kRegionQueryKey, rows_, linears);
  Gather();
}

template <class T>
void ForwardBuilder<T>::StoreWindow(const AttentionShape& shape) {
  const LayerWeights& w = layer(shape.layer_idx);
  WindowArguments<T> arguments{};
  arguments.step = step_;
  arguments.rows = Entering(shape.layer_idx);
  arguments.layer_idx = shape.layer_idx;
  arguments.q_lora = a_.q_lora;
  arguments.kv = a_.kv;
  arguments.q_norm = w.q_norm;
  arguments.kv_norm = w.kv_norm;
  arguments.eps = config_.rms_norm_eps;
  arguments.cos = a_.cos[shape.ratio > 0 ? 1 : 0];
  arguments.sin = a_.sin[shape.ratio > 0 ? 1 : 0];
  arguments.rope_dims = config_.qk_rope_head_dim;
  arguments.layout = KvRowLayout::Make(v41_ ? KvFormat::kV41Window : KvFormat::kV4, config_.head_dim, config_.qk_rope_head_dim, sizeof(T));
  arguments.window = context_.cache->Store(shape.layer_idx, CacheKind::kWindow);
  arguments.ratio = shape.ratio;
  if (shape.owns_entries && !v41_) {
    arguments.ape = w.compressor.ape;
    arguments.pool_logits = Narrow(a_.pool_logits, PoolShape(shape, config_.head_dim).vector_width());
    if (shape.has_indexer) {
      arguments.index_ape = w.index_compressor.ape;
      arguments.index_pool_logits = a_.index_pool_logits;
    }
  }
  if (shape.has_indexer) {
    arguments.index_weights_raw = a_.index_weights_raw;
    arguments.index_weights = a_.index_weights;
    arguments.index_scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.index_head_dim) * static_cast<double>(config_.index_n_heads)));
  }
  builder_.Add(kRegionCompress, [arguments](const WorkerContext& worker) noexcept {
    const Range mine = worker.PartOf(arguments.rows.size());
    for (int64_t i = mine.begin; i < mine.end; ++i) arguments.RunRow(arguments.rows[i]);
  });
}

template <class T>
void ForwardBuilder<T>::ProjectQueries(const AttentionShape& shape) {
  const LayerWeights& w = layer(shape.layer_idx);
  const RowList rows = Passing(shape.layer_idx);
  const View<const T> quantized = QuantizedInput(kRegionQuery, rows, a_.q_lora);
  std::vector<Linear<T>> linears = {{rows, w.wq_b, quantized, a_.q, {}}};
  if (shape.has_indexer) linears.push_back({rows, w.index_wq_b, quantized, a_.index_q, {}});
  EmitLinears<T>(builder_, kRegionQuery, rows_, linears);
  Gather();
}

template <class T>
void ForwardBuilder<T>::EmitAppendEntries(const AttentionShape& shape) {
  const LayerWeights& w = layer(shape.layer_idx);
  const KvCache& cache = *context_.cache;
  EntryArguments<T> entry{};
  entry.step = step_;
  entry.v41 = v41_;
  entry.rope_dims = config_.qk_rope_head_dim;
  entry.frequencies = context_.model->rope_frequencies(true).data();
  entry.eps = config_.rms_norm_eps;
  entry.pool = PoolShape(shape, config_.head_dim);
  const int64_t width = entry.pool.vector_width();
  entry.inputs = {Narrow<const float>(a_.pool_values, width), Narrow<const float>(a_.pool_logits, width)};
  entry.pending = cache.Store(shape.layer_idx, CacheKind::kPending);
  entry.norm = w.compressor.norm;
  entry.layout = KvRowLayout::Make(v41_ ? KvFormat::kV41Compressed : KvFormat::kV4, config_.head_dim, config_.qk_rope_head_dim, sizeof(T));
  entry.entries = cache.Store(shape.layer_idx, CacheKind::kCompressed);
  if (v41_ && shape.ratio == 1) entry.latent = a_.latent;
  entry.has_keys = v41_ || shape.has_indexer;
  entry.key_dim = config_.index_head_dim;
  if (entry.has_keys) {
    entry.key_pool = PoolShape(shape, config_.index_head_dim);
    entry.key_inputs = {a_.index_pool_values, a_.index_pool_logits};
    entry.key_pending = cache.Store(shape.layer_idx, CacheKind::kIndexPending);
    entry.key_norm = v41_ ? w.index_k_norm : w.index_compressor.norm;
    entry.key_weight = w.index_wk;
    entry.key_codes = cache.Store(shape.layer_idx, CacheKind::kIndexCodes);
    entry.key_scales = cache.Store(shape.layer_idx, CacheKind::kIndexScales);
  }
  builder_.RequireScratch(static_cast<size_t>(entry.ScratchBytes()));
  builder_.Add(
      kRegionCompress, [entry](const WorkerContext& worker) noexcept { entry.Run(worker); }, [entry]() noexcept { return entry.Cost(); });
}

template <class T>
void ForwardBuilder<T>::PrepareQueries(const AttentionShape& shape) {
  struct Arguments {
    RowList rows;
    bool v41;
    View<T> q;
    int64_t heads, head_dim, rope_dims;
    float eps;
    View<const float> cos, sin;
    View<T> index_q;
    View<bf16> index_q4;
    int64_t index_heads, index_dim;
  };
  const bool compressed = shape.ratio > 0;
  const Arguments arguments{Passing(shape.layer_idx),
                            v41_,
                            a_.q,
                            config_.num_attention_heads,
                            config_.head_dim,
                            config_.qk_rope_head_dim,
                            config_.rms_norm_eps,
                            a_.cos[compressed ? 1 : 0],
                            a_.sin[compressed ? 1 : 0],
                            a_.index_q,
                            a_.index_q4,
                            shape.has_indexer ? config_.index_n_heads : 0,
                            config_.index_head_dim};
  builder_.Add(kRegionCompress, [arguments](const WorkerContext& worker) noexcept {
    const Arguments& in = arguments;
    const Range heads = worker.PartOf(in.rows.size() * in.heads);
    for (int64_t item = heads.begin; item < heads.end; ++item) {
      const int64_t row = in.rows[item / in.heads];
      T* q = in.q.Row(row) + item % in.heads * in.head_dim;
      if (!in.v41) HeadNorm(q, in.eps, in.head_dim);
      RotateInterleaved(q + in.head_dim - in.rope_dims, in.cos.Row(row), in.sin.Row(row), in.rope_dims, false);
    }
    const Range index_heads = worker.PartOf(in.rows.size() * in.index_heads);
    for (int64_t item = index_heads.begin; item < index_heads.end; ++item) {
      const int64_t row = in.rows[item / in.index_heads], offset = item % in.index_heads * in.index_dim;
      T* q = in.index_q.Row(row) + offset;
      RotateInterleaved(q + in.index_dim - in.rope_dims, in.cos.Row(row), in.sin.Row(row), in.rope_dims, false);
      if (!in.v41) Hadamard(q, in.index_dim);
      uint8_t codes[kIndexHeadDimMax / 2], scales[kIndexHeadDimMax / 32];
      QuantizeQ4(q, in.index_dim, 32, codes, scales);
      DequantizeQ4(codes, scales, in.index_dim, 32, in.index_q4.Row(row) + offset);
    }
  });
  if (shape.owns_entries) EmitAppendEntries(shape);
}

template <class T>
void ForwardBuilder<T>::Select(const AttentionShape& shape) {
  if (!shape.has_indexer) return;
  IndexerArguments arguments;
  arguments.shape.num_heads = config_.index_n_heads;
  arguments.shape.head_dim = config_.index_head_dim;
  arguments.shape.ratio = shape.ratio;
  arguments.shape.topk = config_.index_topk;
  arguments.shape.role = shape.role;
  if (config_.candidate_source_layer_id >= 0) {
    arguments.shape.block_size = config_.candidate_block_size;
    arguments.shape.block_topk = config_.candidate_topk_blocks;
  }
  arguments.shape.round_scores = reference_;
  arguments.step = step_;
  arguments.rows = Passing(shape.layer_idx);
  arguments.queries = a_.index_q4;
  arguments.weights = a_.index_weights;
  arguments.key_codes = context_.cache->Store(shape.entry_layer, CacheKind::kIndexCodes);
  arguments.key_scales = context_.cache->Store(shape.entry_layer, CacheKind::kIndexScales);
  arguments.selection = a_.selection;
  arguments.candidates = a_.candidates;
  arguments.lists = a_.lists;
  builder_.RequireScratch(static_cast<size_t>(IndexerScratchBytes(arguments.shape)));
  builder_.Add(
      kRegionIndex, [arguments](const WorkerContext& worker) noexcept { ScoreEntries(arguments, worker); },
      [arguments]() noexcept { return IndexCost(arguments); });
  builder_.Add(kRegionIndex, [arguments](const WorkerContext& worker) noexcept { MergeSelection(arguments, worker); });
}

template <class T>
void ForwardBuilder<T>::Attend(const AttentionShape& shape) {
  const KvCache& cache = *context_.cache;
  const bool compressed = shape.ratio > 0;
  SparseAttentionArguments<T> arguments;
  arguments.step = step_;
  arguments.rows = Passing(shape.layer_idx);
  arguments.num_heads = config_.num_attention_heads;
  arguments.q = a_.q;
  arguments.window_tokens = config_.sliding_window;
  arguments.window = cache.Store(shape.layer_idx, CacheKind::kWindow);
  arguments.window_layout =
      KvRowLayout::Make(v41_ ? KvFormat::kV41Window : KvFormat::kV4, config_.head_dim, config_.qk_rope_head_dim, sizeof(T));
  int64_t entries_max = config_.sliding_window;
  if (compressed) {
    arguments.compressed = cache.Store(shape.entry_layer, CacheKind::kCompressed);
    arguments.compressed_layout =
        KvRowLayout::Make(v41_ ? KvFormat::kV41Compressed : KvFormat::kV4, config_.head_dim, config_.qk_rope_head_dim, sizeof(T));
    arguments.ratio = shape.ratio;
    if (shape.selects) {
      arguments.selected = a_.selection.entries;
      arguments.selected_counts = a_.selection.counts;
      arguments.selected_stride = a_.selection.topk;
    }
    entries_max += shape.selects ? config_.index_topk : context_.max_context / shape.ratio + 1;
  }
  arguments.sink = layer(shape.layer_idx).attn_sink;
  arguments.round_probabilities = reference_;
  arguments.cos = a_.cos[compressed ? 1 : 0];
  arguments.sin = a_.sin[compressed ? 1 : 0];
  arguments.out = a_.attended;
  builder_.RequireScratch(static_cast<size_t>(SparseAttentionScratchBytes<T>(config_.head_dim, entries_max)));

  struct Pending {
    bool present = false;
    CompressorShape shape;
    CompressorInputs inputs;
    RowStore store;
    void Keep(const Step& step, Range segments) const noexcept {
      if (present) KeepPending(shape, inputs, store, step, segments);
    }
  };
  Pending pending, index_pending;
  if (shape.owns_entries && !(v41_ && shape.ratio == 1)) {
    const CompressorShape pool = PoolShape(shape, config_.head_dim);
    pending = {true,
               pool,
               {Narrow<const float>(a_.pool_values, pool.vector_width()), Narrow<const float>(a_.pool_logits, pool.vector_width())},
               cache.Store(shape.layer_idx, CacheKind::kPending)};
    if (shape.has_indexer && !v41_)
      index_pending = {true,
                       PoolShape(shape, config_.index_head_dim),
                       {a_.index_pool_values, a_.index_pool_logits},
                       cache.Store(shape.layer_idx, CacheKind::kIndexPending)};
  }
  const auto attend = [arguments, pending, index_pending](const WorkerContext& worker) noexcept {
    AttendRows<T>(arguments, worker);
    const Range segments = worker.PartOf(arguments.step->num_segments);
    pending.Keep(*arguments.step, segments);
    index_pending.Keep(*arguments.step, segments);
  };
  builder_.Add(kRegionAttend, attend, [arguments]() noexcept { return AttendCost<T>(arguments); });
}

template <class T>
void ForwardBuilder<T>::ProjectOutput(const AttentionShape& shape) {
  const LayerWeights& w = layer(shape.layer_idx);
  const int64_t groups = config_.o_groups, lora = config_.o_lora_rank;
  const int64_t group_width = a_.attended.cols / groups;
  const RowList rows = Passing(shape.layer_idx);
  std::vector<Linear<T>> grouped;
  for (int64_t group = 0; group < groups; ++group)
    grouped.push_back({rows,
                       w.wo_a.Rows(group * lora, lora),
                       View<const T>(a_.attended).Columns(group * group_width, group_width),
                       a_.o_lora.Columns(group * lora, lora),
                       {}});
  EmitLinears<T>(builder_, kRegionOutput, rows_, grouped);
  Gather();
  const View<const T> quantized = QuantizedInput(kRegionOutput, rows, a_.o_lora);
  EmitLinears<T>(builder_, kRegionOutput, rows_, {{rows, w.wo_b, quantized, a_.y, {}}});
  Gather();
}

template void ForwardBuilder<float>::ProjectInputs(const AttentionShape&);
template void ForwardBuilder<bf16>::ProjectInputs(const AttentionShape&);
template void ForwardBuilder<float>::StoreWindow(const AttentionShape&);
template void ForwardBuilder<bf16>::StoreWindow(const AttentionShape&);
template void ForwardBuilder<float>::ProjectQueries(const AttentionShape&);
template void ForwardBuilder<bf16>::ProjectQueries(const AttentionShape&);
template void ForwardBuilder<float>::PrepareQueries(const AttentionShape&);
template void ForwardBuilder<bf16>::PrepareQueries(const AttentionShape&);
template void ForwardBuilder<float>::Select(const AttentionShape&);
template void ForwardBuilder<bf16>::Select(const AttentionShape&);
template void ForwardBuilder<float>::Attend(const AttentionShape&);
template void ForwardBuilder<bf16>::Attend(const AttentionShape&);
template void ForwardBuilder<float>::ProjectOutput(const AttentionShape&);
template void ForwardBuilder<bf16>::ProjectOutput(const AttentionShape&);

}  // namespace tessera
