// The exact encoder shortcut of V4.1 (docs/architecture.md): layers from the last KV source on keep nothing of a token but window rows, so
// a prompt token that no needed row can reach through the windows of the layers above leaves the pass early. A row of depth d passes the
// layers below d in full; at layer d it still gives its window row (and, at the last KV source, its latent and index key); above d it does
// not exist. What is computed has the same bits, and what is left out nobody reads.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arena.h"
#include "core/row_list.h"
#include "core/step.h"
#include "model/config.h"

namespace tessera {

// Layers that every token passes in full: those below the last KV source in V4.1, all of them in V4 (each layer compresses what it saw).
int32_t EncoderLayers(const ModelConfig& config);

// Depth of the token `distance` positions before the last one in front of a boundary: the end of the prompt, or a place where the state is
// going to be saved. Layer l needs its last 1 + (window - 1) * (num_layers - 1 - l) rows in full.
int32_t RowDepth(const ModelConfig& config, int64_t distance);

// Sets the depths of the last segment of a step. `boundaries` ascend: those inside the segment and the first one at or behind its end, as
// numbers of tokens processed there. Aborts when a row that is not the last before a boundary wants logits.
void SetDepths(const ModelConfig& config, const std::vector<int64_t>& boundaries, Step& step);

// Rows that reach each layer, compacted from the depths of a step.
struct LayerRows {
  int32_t first_layer = 0;    // below it all rows
  int32_t num_layers = 0;
  int32_t max_rows = 0;
  int32_t* counts = nullptr;  // [num_layers + 1 - first_layer]
  int32_t* rows = nullptr;    // [num_layers + 1 - first_layer, max_rows]

  static LayerRows Allocate(Arena& arena, const ModelConfig& config, int32_t max_rows);
  // Rows that enter layer `layer_idx` (depth >= layer_idx) and give their window row there; those that pass it enter layer_idx + 1.
  RowList Entering(const Step& step, int layer_idx) const;
  RowList Passing(const Step& step, int layer_idx) const { return Entering(step, layer_idx + 1); }
  void Compact(const Step& step) const noexcept;
};

}  // namespace tessera
