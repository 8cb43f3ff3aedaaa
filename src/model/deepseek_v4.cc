// DeepSeek-V4 (Flash, Pro), top to bottom: spec/model.md sections 3.3, 5 and 7.
#include "model/deepseek_v4.h"

#include "model/forward_builder.h"

namespace tessera {
namespace {

constexpr int kCsaRatio = 4;  // ratio 4: overlapped compressor and indexer; any other ratio > 0: every compressed entry is visible

AttentionShape Shape(const ModelConfig& config, int layer_idx) {
  AttentionShape shape;
  shape.layer_idx = layer_idx;
  shape.ratio = config.compress_ratios[static_cast<size_t>(layer_idx)];
  shape.owns_entries = shape.ratio > 0;
  shape.has_indexer = shape.selects = shape.ratio == kCsaRatio;
  shape.entry_layer = shape.ratio > 0 ? layer_idx : -1;
  return shape;
}

}  // namespace

template <class T>
ForwardOutputs BuildDeepseekV4(PlanBuilder& builder, const ForwardContext& context) {
  ForwardBuilder<T> forward(builder, context);
  Activations<T>& a = forward.activations();
  forward.Inputs();
  for (int layer_idx = 0; layer_idx < forward.config().num_hidden_layers; ++layer_idx) {
    const LayerWeights& layer = forward.layer(layer_idx);
    const AttentionShape shape = Shape(forward.config(), layer_idx);

    // Attention on the normed collapse of the streams.
    forward.MixAndNorm(forward.Entering(layer_idx), layer.hc_attn, a.hc_attn, nullptr, layer.attn_norm);
    forward.ProjectInputs(shape);
    forward.StoreWindow(shape);
    forward.ProjectQueries(shape);
    forward.PrepareQueries(shape);
    forward.Select(shape);
    forward.Attend(shape);
    forward.ProjectOutput(shape);
    forward.Expand(forward.Passing(layer_idx), a.hc_attn);

    // Mixture of experts; the first num_hash_layers route by token id.
    forward.MixAndNorm(forward.Passing(layer_idx), layer.hc_ffn, a.hc_ffn, nullptr, layer.ffn_norm);
    forward.Moe(layer_idx, a.hc_ffn);
    forward.RecordLayer(layer_idx, shape);
  }
  return forward.Head(nullptr);
}

template ForwardOutputs BuildDeepseekV4<float>(PlanBuilder&, const ForwardContext&);
template ForwardOutputs BuildDeepseekV4<bf16>(PlanBuilder&, const ForwardContext&);

}  // namespace tessera
