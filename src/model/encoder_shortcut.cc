#include "model/encoder_shortcut.h"

#include <algorithm>

#include "core/check.h"

namespace tessera {

int32_t EncoderLayers(const ModelConfig& config) {
  if (!config.v41() || config.kv_source_layer_ids.empty()) return config.num_hidden_layers;
  return *std::max_element(config.kv_source_layer_ids.begin(), config.kv_source_layer_ids.end());
}

int32_t RowDepth(const ModelConfig& config, int64_t distance) {
  const int64_t reach = config.sliding_window - 1;
  // The layers l that need it: distance <= reach * (num_layers - 1 - l).
  int64_t layers = config.num_hidden_layers;
  if (distance > 0) layers -= reach == 0 ? layers : std::min<int64_t>(layers, (distance + reach - 1) / reach);
  return std::max(EncoderLayers(config), static_cast<int32_t>(layers));
}

void SetDepths(const ModelConfig& config, const std::vector<int64_t>& boundaries, Step& step) {
  TSR_CHECK(step.num_segments > 0, "a step without segments");
  const Segment& segment = step.segments[step.num_segments - 1];
  const int64_t end = segment.start_pos + segment.num_rows;
  TSR_CHECK(!boundaries.empty() && boundaries.back() >= end && std::is_sorted(boundaries.begin(), boundaries.end()),
            "{} boundaries, the last at {}, the segment ends at {}", boundaries.size(), boundaries.empty() ? 0 : boundaries.back(), end);
  auto boundary = boundaries.begin();
  int32_t logit_idx = step.num_logit_rows;
  while (logit_idx > 0 && step.logit_row[logit_idx - 1] >= segment.first_row) --logit_idx;
  for (int32_t i = 0; i < segment.num_rows; ++i) {
    const int64_t position = segment.start_pos + i;
    while (*boundary <= position) ++boundary;
    // The nearest boundary asks for the most layers.
    step.depth[segment.first_row + i] = RowDepth(config, *boundary - 1 - position);
    if (logit_idx == step.num_logit_rows || step.logit_row[logit_idx] != segment.first_row + i) continue;
    TSR_CHECK(position == *boundary - 1, "a row of the segment at {} wants logits before the boundary {}", segment.start_pos, *boundary);
    ++logit_idx;
  }
}

LayerRows LayerRows::Allocate(Arena& arena, const ModelConfig& config, int32_t max_rows) {
  LayerRows lists;
  lists.num_layers = config.num_hidden_layers;
  lists.first_layer = EncoderLayers(config) + 1;
  lists.max_rows = max_rows;
  const int64_t num_lists = std::max(0, lists.num_layers + 1 - lists.first_layer);
  lists.counts = arena.Allocate<int32_t>(num_lists);
  lists.rows = arena.Allocate<int32_t>(num_lists * max_rows);
  return lists;
}

RowList LayerRows::Entering(const Step& step, int layer_idx) const {
  if (layer_idx < first_layer) return step.AllRows();
  const int64_t list = layer_idx - first_layer;
  return {rows + list * max_rows, counts + list};
}

void LayerRows::Compact(const Step& step) const noexcept {
  for (int32_t layer_idx = first_layer; layer_idx <= num_layers; ++layer_idx) {
    const int64_t list = layer_idx - first_layer;
    int32_t count = 0;
    for (int32_t row = 0; row < step.num_rows; ++row)
      if (step.depth[row] >= layer_idx) rows[list * max_rows + count++] = row;
    counts[list] = count;
  }
}

}  // namespace tessera
