// The vocabulary in which the two models are written: each method emits the ops of one phase. T is the activation type.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/compressor.h"
#include "attention/indexer.h"
#include "attention/kv_row.h"
#include "model/activations.h"
#include "model/forward.h"
#include "model/linears.h"
#include "moe/experts.h"

namespace tessera {

// What one layer's attention works on.
struct AttentionShape {
  int layer_idx = 0;
  int ratio = 0;              // tokens per compressed entry, 0: window only
  bool owns_entries = false;  // this layer's compressor fills the compressed rows
  bool has_indexer = false;
  bool selects = false;  // attends a selection (its own or a reused one), not every visible entry
  int entry_layer = -1;  // layer that owns the compressed rows attended
  CandidateRole role = CandidateRole::kNone;
};

template <class T>
class ForwardBuilder {
 public:
  ForwardBuilder(PlanBuilder& builder, const ForwardContext& context);

  // Inputs: rotary angles, embedding into every stream, n-gram row ids issued to the store.
  void Inputs();
  void Engram(int layer_idx);

  // x <- norm(collapse(streams, weights)); the site's coefficients go to `coefficients`. V4 collapses with the coefficients just computed
  // (lagged == null), V4.1 with those of the site before.
  void MixAndNorm(RowList rows, const HyperConnectionWeights& weights, HcCoefficients* coefficients, const HcCoefficients* lagged,
                  const bf16* norm);
  // streams <- expand(y, streams) with the site's coefficients.
  void Expand(RowList rows, const HcCoefficients* coefficients);

  // Attention, phase by phase; x -> y.
  void ProjectInputs(const AttentionShape& shape);  // low-rank q, kv, compressor and indexer inputs
  void StoreWindow(const AttentionShape& shape);    // norms, rotation, window rows
  void ProjectQueries(const AttentionShape& shape);
  void PrepareQueries(const AttentionShape& shape);  // head norm (V4), rotation; indexer queries; compressed entries and index keys
  void Select(const AttentionShape& shape);
  void Attend(const AttentionShape& shape);  // and keeps the pending compressor rows
  void ProjectOutput(const AttentionShape& shape);

  // Router, experts, combine, expand with the FFN site's coefficients.
  void Moe(int layer_idx, const HcCoefficients* coefficients);

  // Rows that enter a layer, and those of them that pass it in full (model/encoder_shortcut.h).
  RowList Entering(int layer_idx) const { return a_.layer_rows.Entering(*step_, layer_idx); }
  RowList Passing(int layer_idx) const { return a_.layer_rows.Passing(*step_, layer_idx); }

  void RecordLayer(int layer_idx, const AttentionShape& shape);
  // Final collapse with `weights` of the last site (V4.1) or the trained head weights (V4), norm, logits of the rows that want them.
  ForwardOutputs Head(const HcCoefficients* coefficients);

  Activations<T>& activations() { return a_; }
  const LayerWeights& layer(int layer_idx) const { return weights_.layers[static_cast<size_t>(layer_idx)]; }
  const ModelConfig& config() const { return config_; }

 private:
  void HashNgrams();
  // x itself, or under --numerics reference an op that writes its Q8 fake-quantisation.
  View<const T> QuantizedInput(Region region, RowList rows, View<const T> x);
  void QuantizeInPlace(Region region, View<T> rows, const int32_t* num_rows, int64_t rows_per_row);
  void EmitCombine(RowList rows, const ExpertArguments<T>& experts, const HcCoefficients* coefficients);
  void EmitAppendEntries(const AttentionShape& shape);
  CompressorShape PoolShape(const AttentionShape& shape, int64_t width) const;
  // Where ranks exchange the output rows they computed; one rank has them all.
  void Gather() const;

  PlanBuilder& builder_;
  const ForwardContext& context_;
  const ModelConfig& config_;
  const ModelWeights& weights_;
  const Step* step_;
  bool v41_;
  bool reference_;
  int32_t rows_;
  Activations<T> a_;
};

}  // namespace tessera
