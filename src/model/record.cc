// Copies of what a layer computed, for dumps (`tessera eval --dump-layers`).
#include <algorithm>

#include "kernels/convert.h"
#include "model/forward_builder.h"

namespace tessera {

StepRecord StepRecord::Allocate(Arena& arena, const ModelConfig& config, int32_t max_rows) {
  StepRecord record;
  for (int layer_idx = 0; layer_idx < config.num_hidden_layers; ++layer_idx) {
    LayerRecord layer;
    layer.streams = arena.AllocateView<float>(max_rows, config.hc_mult * config.hidden_size);
    layer.expert_ids = arena.AllocateView<int32_t>(max_rows, config.num_experts_per_tok);
    layer.expert_weights = arena.AllocateView<float>(max_rows, config.num_experts_per_tok);
    if (config.compress_ratios[static_cast<size_t>(layer_idx)] > 0 && (config.v41() || config.HasIndexer(layer_idx))) {
      layer.selected = arena.AllocateView<int32_t>(max_rows, config.index_topk);
      layer.selected_counts = arena.Allocate<int32_t>(max_rows);
    }
    if (config.v41() && layer_idx == config.candidate_source_layer_id) {
      layer.candidates = arena.AllocateView<int32_t>(max_rows, config.candidate_topk_blocks);
      layer.candidate_counts = arena.Allocate<int32_t>(max_rows);
    }
    if (config.IsEngramLayer(layer_idx)) layer.engram_rows = arena.AllocateView<int64_t>(max_rows, config.engram_columns());
    record.layers.push_back(layer);
  }
  return record;
}

template <class T>
void ForwardBuilder<T>::RecordLayer(int layer_idx, const AttentionShape& shape) {
  if (context_.record == nullptr) return;
  const LayerRecord record = context_.record->layers[static_cast<size_t>(layer_idx)];
  const Activations<T> a = a_;
  const Step* step = step_;
  const int64_t k = config_.num_experts_per_tok;
  const bool selects = shape.selects, publishes = shape.role == CandidateRole::kPublish;
  int engram_idx = -1;
  for (size_t i = 0; i < config_.engram_layer_ids.size(); ++i)
    if (config_.engram_layer_ids[i] == layer_idx) engram_idx = static_cast<int>(i);
  builder_.Add(kRegionRecord, [=](const WorkerContext& worker) noexcept {
    const Range rows = worker.PartOf(step->num_rows);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      ConvertRow(a.streams.Row(row), a.streams.cols, record.streams.Row(row));
      std::copy_n(a.expert_ids + row * k, k, record.expert_ids.Row(row));
      std::copy_n(a.expert_weights + row * k, k, record.expert_weights.Row(row));
      if (selects) {
        record.selected_counts[row] = a.selection.counts[row];
        std::copy_n(a.selection.entries + row * a.selection.topk, a.selection.counts[row], record.selected.Row(row));
      }
      if (publishes) {
        record.candidate_counts[row] = a.candidates.counts[row];
        std::copy_n(a.candidates.blocks + row * a.candidates.block_topk, a.candidates.counts[row], record.candidates.Row(row));
      }
      if (engram_idx >= 0) std::copy_n(a.engram_rows[engram_idx].Row(row), record.engram_rows.cols, record.engram_rows.Row(row));
    }
  });
}

template void ForwardBuilder<float>::RecordLayer(int, const AttentionShape&);
template void ForwardBuilder<bf16>::RecordLayer(int, const AttentionShape&);

}  // namespace tessera
