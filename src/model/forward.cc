#include "model/forward.h"

#include <algorithm>

#include "attention/compressor.h"
#include "attention/kv_row.h"
#include "model/activations.h"
#include "model/deepseek_v4.h"
#include "model/deepseek_v41.h"

namespace tessera {
namespace {

template <class T>
ForwardOutputs Build(PlanBuilder& builder, const ForwardContext& context) {
  return context.model->config().v41() ? BuildDeepseekV41<T>(builder, context) : BuildDeepseekV4<T>(builder, context);
}

// Compressed entries, index keys and pending rows of a layer that owns them.
void AddEntryLayouts(const ModelConfig& config, int layer_idx, int64_t activation_bytes, const CacheExtent& extent,
                     std::vector<CacheLayout>& layouts) {
  const int ratio = config.compress_ratios[static_cast<size_t>(layer_idx)];
  const KvFormat format = config.v41() ? KvFormat::kV41Compressed : KvFormat::kV4;
  const KvRowLayout row = KvRowLayout::Make(format, config.head_dim, config.qk_rope_head_dim, activation_bytes);
  const int64_t entries = extent.max_context / ratio + 1;
  layouts.push_back({layer_idx, CacheKind::kCompressed, entries, row.row_bytes, 0, ratio});
  if (config.v41() || config.HasIndexer(layer_idx)) {
    layouts.push_back({layer_idx, CacheKind::kIndexCodes, entries, config.index_head_dim / 2, 0, ratio});
    layouts.push_back({layer_idx, CacheKind::kIndexScales, entries, (config.index_head_dim + 31) / 32, 0, ratio});
  }
  if (config.v41() && ratio == 1) return;
  const bool overlap = !config.v41() && config.HasIndexer(layer_idx);
  const CompressorShape pool{ratio, overlap, config.head_dim};
  // Only an overlap outlives the entry it was pooled into, so only it must still be there when a snapshot reaches back.
  const int64_t ring_rows = pool.pending_tokens() + (overlap ? extent.snapshot_reach : 0);
  layouts.push_back({layer_idx, CacheKind::kPending, ring_rows, pool.pending_row_bytes(), pool.pending_tokens(), ratio});
  if (config.v41() || !config.HasIndexer(layer_idx)) return;
  const CompressorShape keys{ratio, overlap, config.index_head_dim};
  layouts.push_back({layer_idx, CacheKind::kIndexPending, ring_rows, keys.pending_row_bytes(), keys.pending_tokens(), ratio});
}

}  // namespace

ForwardOutputs BuildForward(PlanBuilder& builder, const ForwardContext& context) {
  return context.numerics == Numerics::kFp32 ? Build<float>(builder, context) : Build<bf16>(builder, context);
}

std::vector<CacheLayout> CacheLayouts(const ModelConfig& config, Numerics numerics, const CacheExtent& extent) {
  const int64_t activation_bytes = ActivationBytes(numerics);
  std::vector<CacheLayout> layouts;
  const KvFormat format = config.v41() ? KvFormat::kV41Window : KvFormat::kV4;
  const KvRowLayout window = KvRowLayout::Make(format, config.head_dim, config.qk_rope_head_dim, activation_bytes);
  // A chunk writes all its rows before the first of them is read, so the ring holds them beside the window before them.
  const int64_t ring_rows = config.sliding_window - 1 + extent.max_rows;
  for (int layer_idx = 0; layer_idx < config.num_hidden_layers; ++layer_idx) {
    // A window of one token keeps nothing of the past; one row is kept all the same, since 0 would say that the store is no ring.
    layouts.push_back({layer_idx, CacheKind::kWindow, ring_rows, window.row_bytes, std::max<int64_t>(1, config.sliding_window - 1), 1});
    const bool owns = config.v41() ? config.IsKvSource(layer_idx) : config.compress_ratios[static_cast<size_t>(layer_idx)] > 0;
    if (owns) AddEntryLayouts(config, layer_idx, activation_bytes, extent, layouts);
  }
  const int64_t history = config.engram_max_ngram_size - 1;
  if (!config.engram_layer_ids.empty())
    layouts.push_back({0, CacheKind::kEngramHistory, history + extent.snapshot_reach, 4, history, 1});
  return layouts;
}

size_t ActivationBytesMax(const ModelConfig& config, Numerics numerics, int32_t max_rows, int num_workers) {
  Arena arena = Arena::Measuring("activation sizes"), arguments = Arena::Growing("activation arguments");
  if (numerics == Numerics::kFp32)
    Activations<float>::Allocate(arena, arguments, config, max_rows, num_workers);
  else
    Activations<bf16>::Allocate(arena, arguments, config, max_rows, num_workers);
  return arena.used_bytes();
}

}  // namespace tessera
