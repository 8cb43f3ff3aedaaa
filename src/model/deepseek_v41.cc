// DeepSeek-V4.1 (Flash), top to bottom: spec/model.md sections 3.4, 6, 7 and 8.
#include "model/deepseek_v41.h"

#include "model/forward_builder.h"

namespace tessera {
namespace {

AttentionShape Shape(const ModelConfig& config, int layer_idx) {
  AttentionShape shape;
  shape.layer_idx = layer_idx;
  shape.ratio = config.compress_ratios[static_cast<size_t>(layer_idx)];
  if (shape.ratio == 0) return shape;
  shape.owns_entries = config.IsKvSource(layer_idx);
  shape.has_indexer = config.IsIndexSource(layer_idx);
  shape.selects = true;
  // Layers between two sources read the entries of the one before them.
  for (const int source : config.kv_source_layer_ids)
    if (source <= layer_idx) shape.entry_layer = source;
  if (layer_idx == config.candidate_source_layer_id) shape.role = CandidateRole::kPublish;
  if (config.candidate_source_layer_id >= 0 && layer_idx > config.candidate_source_layer_id) shape.role = CandidateRole::kRestrict;
  return shape;
}

}  // namespace

template <class T>
ForwardOutputs BuildDeepseekV41(PlanBuilder& builder, const ForwardContext& context) {
  ForwardBuilder<T> forward(builder, context);
  Activations<T>& a = forward.activations();
  forward.Inputs();
  for (int layer_idx = 0; layer_idx < forward.config().num_hidden_layers; ++layer_idx) {
    const LayerWeights& layer = forward.layer(layer_idx);
    const AttentionShape shape = Shape(forward.config(), layer_idx);

    if (forward.config().IsEngramLayer(layer_idx)) forward.Engram(layer_idx);

    // The collapse weights lag by one site: attention uses those of the last FFN site, the FFN those of this attention site.
    forward.MixAndNorm(forward.Entering(layer_idx), layer.hc_attn, a.hc_attn, a.hc_ffn, layer.attn_norm);
    forward.ProjectInputs(shape);
    forward.StoreWindow(shape);
    forward.ProjectQueries(shape);
    forward.PrepareQueries(shape);
    forward.Select(shape);
    forward.Attend(shape);
    forward.ProjectOutput(shape);
    forward.Expand(forward.Passing(layer_idx), a.hc_attn);

    forward.MixAndNorm(forward.Passing(layer_idx), layer.hc_ffn, a.hc_ffn, a.hc_attn, layer.ffn_norm);
    forward.Moe(layer_idx, a.hc_ffn);
    forward.RecordLayer(layer_idx, shape);
  }
  return forward.Head(a.hc_ffn);
}

template ForwardOutputs BuildDeepseekV41<float>(PlanBuilder&, const ForwardContext&);
template ForwardOutputs BuildDeepseekV41<bf16>(PlanBuilder&, const ForwardContext&);

}  // namespace tessera
