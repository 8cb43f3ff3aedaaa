#include "model/weights.h"

#include <spdlog/spdlog.h>

#include <cstring>
#include <unordered_map>

#include "core/check.h"

namespace tessera {
namespace {

// Hands out the tensors of a checkpoint that VerifyTable found sound. Every claimed entry of the table must be taken exactly once, so
// that the table and the structs of weights.h cannot drift apart.
class Claimer {
 public:
  Claimer(const ModelConfig& config, const Checkpoint& checkpoint, ClaimOptions options, ModelWeights& weights)
      : config_(config), checkpoint_(checkpoint), options_(options), weights_(weights) {
    VisitTensorTable(config, StorageOfExperts(checkpoint), [&](const TensorSpec& spec) {
      if (spec.claimed) specs_.emplace(spec.name, spec);
    });
  }

  void SetPrefix(std::string prefix) { prefix_ = std::move(prefix); }

  // This rank's rows of "<name>.weight", with "<name>.scale" where the payload is quantised.
  QuantView Matrix(const std::string& name) {
    const Taken taken = Take(name + ".weight");
    QuantView view = Payload(taken);
    if (view.format == Format::kE4M3 || view.format == Format::kE2M1) {
      const Taken scale = Take(name + ".scale");
      view.scales = scale.data->bytes.data();
      view.scale_stride = scale.data->shape[1];
      // Packed experts and Engram tables have a scale per row and 32 columns, everything else the block of the config.
      const bool is_row_scaled = view.format == Format::kE2M1 || taken.spec.group == WeightGroup::kEngramTable;
      view.block_rows = is_row_scaled ? 1 : config_.weight_block_rows;
      view.block_cols = is_row_scaled ? 32 : config_.weight_block_cols;
    }
    return Shard(view, taken.spec);
  }
  // This rank's rows of an unquantised matrix whose name has no ".weight".
  QuantView Plain(const std::string& name) {
    const Taken taken = Take(name);
    return Shard(Payload(taken), taken.spec);
  }
  const bf16* Bf16(const std::string& name) { return Vector<bf16>(name); }
  const float* F32(const std::string& name) { return Vector<float>(name); }
  const uint8_t* Bytes(const std::string& name) { return Take(name).data->bytes.data(); }

  HyperConnectionWeights HyperConnection(const std::string& name) {
    return {Plain(name + "_fn"), F32(name + "_base"), F32(name + "_scale")};
  }
  ExpertWeights Expert(const std::string& name) {
    ExpertWeights expert;
    expert.w1 = Matrix(name + ".w1");
    expert.w3 = Matrix(name + ".w3");
    expert.w2 = Matrix(name + ".w2");
    return expert;
  }

  void CheckAllTaken() const {
    TSR_CHECK(specs_.empty(), "{} tensors of the table were not claimed, one is {}", specs_.size(), specs_.begin()->first);
  }

 private:
  struct Taken {
    TensorSpec spec;
    const TensorData* data;
  };

  Taken Take(const std::string& name) {
    const auto found = specs_.find(prefix_ + name);
    TSR_CHECK(found != specs_.end(), "{}{} is not in the table or was taken before", prefix_, name);
    Taken taken{std::move(found->second), checkpoint_.Find(prefix_ + name)};
    TSR_CHECK(taken.data != nullptr, "{}{} is missing in a verified checkpoint", prefix_, name);
    specs_.erase(found);
    return taken;
  }

  static QuantView Payload(const Taken& taken) {
    QuantView view;
    view.payload = taken.data->bytes.data();
    view.rows = taken.data->shape[0];
    view.cols = taken.data->shape[1];
    switch (taken.data->dtype) {
      case Dtype::kBF16:
        view.format = Format::kBF16;
        break;
      case Dtype::kF32:
        view.format = Format::kF32;
        break;
      case Dtype::kF8E4M3:
        view.format = Format::kE4M3;
        break;
      default:
        view.format = Format::kE2M1;  // two columns a byte
        view.cols *= 2;
    }
    view.row_bytes = FormatRowBytes(view.format, view.cols);
    return view;
  }

  QuantView Shard(const QuantView& view, const TensorSpec& spec) const {
    if (spec.shard_axis == ShardAxis::kNone) return view;
    const RowShard shard = ShardRows(view.rows, options_.rank, options_.ranks, spec.shard_grain);
    return view.Rows(shard.first, shard.count);
  }

  template <class T>
  const T* Vector(const std::string& name) {
    const std::span<const uint8_t> bytes = Take(name).data->bytes;
    if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(T) == 0) return reinterpret_cast<const T*>(bytes.data());
    weights_.aligned_copies.push_back(std::make_unique<uint8_t[]>(bytes.size()));
    uint8_t* copy = weights_.aligned_copies.back().get();
    std::memcpy(copy, bytes.data(), bytes.size());
    return reinterpret_cast<const T*>(copy);
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  const ClaimOptions options_;
  ModelWeights& weights_;
  std::unordered_map<std::string, TensorSpec> specs_;  // not yet taken
  std::string prefix_;
};

CompressorWeights ClaimCompressor(Claimer& claimer, const std::string& name, bool has_gate, bool has_ape) {
  CompressorWeights compressor;
  compressor.wkv = claimer.Matrix(name + ".wkv");
  if (has_gate) compressor.wgate = claimer.Matrix(name + ".wgate");
  if (has_ape) compressor.ape = claimer.F32(name + ".ape");
  compressor.norm = claimer.Bf16(name + ".norm.weight");
  return compressor;
}

void ClaimAttention(const ModelConfig& config, int layer_idx, Claimer& claimer, LayerWeights& layer) {
  layer.wq_a = claimer.Matrix("attn.wq_a");
  layer.wq_b = claimer.Matrix("attn.wq_b");
  layer.wkv = claimer.Matrix("attn.wkv");
  layer.wo_a = claimer.Matrix("attn.wo_a");
  layer.wo_b = claimer.Matrix("attn.wo_b");
  layer.q_norm = claimer.Bf16("attn.q_norm.weight");
  layer.kv_norm = claimer.Bf16("attn.kv_norm.weight");
  layer.attn_sink = claimer.F32("attn.attn_sink");
  const int ratio = config.compress_ratios[static_cast<size_t>(layer_idx)];
  if (config.v41()) {
    if (config.IsKvSource(layer_idx)) {
      layer.compressor = ClaimCompressor(claimer, "attn.compressor", ratio > 1, false);
      layer.index_wk = claimer.Matrix("attn.indexer.wk");
      layer.index_k_norm = claimer.Bf16("attn.indexer.k_norm.weight");
    }
  } else if (ratio > 0) {
    layer.compressor = ClaimCompressor(claimer, "attn.compressor", true, true);
    if (config.HasIndexer(layer_idx)) layer.index_compressor = ClaimCompressor(claimer, "attn.indexer.compressor", true, true);
  }
  if (config.HasIndexer(layer_idx)) {
    layer.index_wq_b = claimer.Matrix("attn.indexer.wq_b");
    layer.index_weights_proj = claimer.Matrix("attn.indexer.weights_proj");
  }
}

LayerWeights ClaimLayer(const ModelConfig& config, int layer_idx, Claimer& claimer) {
  LayerWeights layer;
  claimer.SetPrefix(fmt::format("layers.{}.", layer_idx));
  layer.attn_norm = claimer.Bf16("attn_norm.weight");
  layer.ffn_norm = claimer.Bf16("ffn_norm.weight");
  layer.hc_attn = claimer.HyperConnection("hc_attn");
  layer.hc_ffn = claimer.HyperConnection("hc_ffn");
  ClaimAttention(config, layer_idx, claimer, layer);
  layer.gate = claimer.Matrix("ffn.gate");
  if (layer_idx < config.num_hash_layers) {
    layer.tid2eid = claimer.Bytes("ffn.gate.tid2eid");
  } else {
    layer.gate_bias = claimer.F32("ffn.gate.bias");
  }
  layer.experts.reserve(static_cast<size_t>(config.n_routed_experts));
  for (int expert_idx = 0; expert_idx < config.n_routed_experts; ++expert_idx) {
    layer.experts.push_back(claimer.Expert(fmt::format("ffn.experts.{}", expert_idx)));
  }
  layer.shared_expert = claimer.Expert("ffn.shared_experts");
  if (config.IsEngramLayer(layer_idx)) {
    layer.engram_table = claimer.Matrix("engram.embed");
    layer.engram_wkv = claimer.Matrix("engram.wkv");
    layer.engram_q_weight = claimer.Plain("engram.q_weight");
    layer.engram_k_weight = claimer.Plain("engram.k_weight");
  }
  return layer;
}

void LogExtras(const Checkpoint& checkpoint) {
  size_t num_drafts = 0, num_vision = 0;
  for (const auto& [name, data] : checkpoint.tensors()) {
    if (IsKnownExtra(name)) ++(name.starts_with("mtp.") ? num_drafts : num_vision);
  }
  if (num_drafts + num_vision > 0) spdlog::info("{} draft and {} vision tensors are not used", num_drafts, num_vision);
}

}  // namespace

ModelWeights ClaimWeights(const ModelConfig& config, const Checkpoint& checkpoint, ClaimOptions options) {
  const std::vector<CheckpointProblem> problems = VerifyTable(config, checkpoint);
  if (problems.size() == 1) Fail("{}", problems.front().message);
  if (!problems.empty()) Fail("{} (and {} more problems; `tessera check` lists them)", problems.front().message, problems.size() - 1);
  LogExtras(checkpoint);

  ModelWeights weights;
  Claimer claimer(config, checkpoint, options, weights);
  weights.embed = claimer.Matrix("embed");
  weights.head = claimer.Matrix("head");
  weights.norm = claimer.Bf16("norm.weight");
  if (!config.v41()) weights.hc_head = claimer.HyperConnection("hc_head");
  weights.layers.reserve(static_cast<size_t>(config.num_hidden_layers));
  for (int layer_idx = 0; layer_idx < config.num_hidden_layers; ++layer_idx)
    weights.layers.push_back(ClaimLayer(config, layer_idx, claimer));
  claimer.CheckAllTaken();
  return weights;
}

}  // namespace tessera
