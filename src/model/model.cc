#include "model/model.h"

#include <algorithm>

#include "core/check.h"
#include "engram/store_private.h"
#include "kernels/rope.h"

namespace tessera {
namespace {

std::vector<float> LayerFrequencies(const ModelConfig& config, bool compressed) {
  RopeParameters parameters;
  parameters.rope_dims = config.qk_rope_head_dim;
  parameters.theta = compressed ? config.compress_rope_theta : config.rope_theta;
  parameters.yarn = compressed && config.rope_scaling.present;
  parameters.factor = config.rope_scaling.factor;
  parameters.beta_fast = config.rope_scaling.beta_fast;
  parameters.beta_slow = config.rope_scaling.beta_slow;
  parameters.original_max_position_embeddings = config.rope_scaling.original_max_position_embeddings;
  return RopeFrequencies(parameters);
}

// A small BF16 or F32 matrix as floats.
std::vector<float> Floats(const QuantView& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.rows * matrix.cols));
  for (int64_t row = 0; row < matrix.rows; ++row)
    for (int64_t col = 0; col < matrix.cols; ++col) {
      float& value = values[static_cast<size_t>(row * matrix.cols + col)];
      bf16 narrow;
      if (matrix.format == Format::kF32) {
        std::memcpy(&value, matrix.Row(row) + col * 4, 4);
      } else {
        std::memcpy(&narrow, matrix.Row(row) + col * 2, 2);
        value = ToFloat(narrow);
      }
    }
  return values;
}

}  // namespace

Model::Model(const std::string& model_dir, const std::vector<int32_t>& token_map, ClaimOptions claim)
    : config_(ReadModelConfig(model_dir)), checkpoint_(Checkpoint::Open(model_dir)), weights_(ClaimWeights(config_, checkpoint_, claim)) {
  RefuseNanScales(checkpoint_);
  for (const bool compressed : {false, true}) rope_frequencies_[compressed ? 1 : 0] = LayerFrequencies(config_, compressed);
  if (config_.engram_layer_ids.empty()) return;

  const int64_t num_keys = token_map.empty() ? 0 : *std::max_element(token_map.begin(), token_map.end()) + 1;
  if (num_keys != config_.engram_compressed_vocab_size)
    Fail(
        "{}/tokenizer.json: {} compressed token ids, engram_compressed_vocab_size in config.json says {}: every n-gram hash would be wrong",
        model_dir, num_keys, config_.engram_compressed_vocab_size);
  if (config_.engram_pad_token_id >= static_cast<int64_t>(token_map.size()))
    Fail("{}/tokenizer.json: {} tokens, engram_pad_token_id in config.json is {}", model_dir, token_map.size(),
         config_.engram_pad_token_id);
  if (config_.engram_pad_token_id >= static_cast<int64_t>(token_map.size()))
    Fail("{}/tokenizer.json: {} tokens, engram_pad_token_id in config.json is {}", model_dir, token_map.size(),
         config_.engram_pad_token_id);
  token_map_.assign(static_cast<size_t>(config_.vocab_size), token_map[static_cast<size_t>(config_.engram_pad_token_id)]);
  std::copy_n(token_map.begin(), std::min(token_map.size(), token_map_.size()), token_map_.begin());

  EngramHashConfig hash_config;
  hash_config.layer_ids.assign(config_.engram_layer_ids.begin(), config_.engram_layer_ids.end());
  hash_config.max_ngram_size = config_.engram_max_ngram_size;
  hash_config.n_heads = config_.engram_n_heads;
  hash_config.engram_vocab_size = config_.engram_vocab_size;
  hash_config.compressed_vocab_size = config_.engram_compressed_vocab_size;
  std::vector<EngramLayerHash> hashes = EngramHashes(hash_config);
  std::vector<QuantView> tables;
  for (size_t i = 0; i < hashes.size(); ++i) {
    const int layer_idx = config_.engram_layer_ids[i];
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(layer_idx)];
    if (hashes[i].table_rows > config_.engram_num_embeddings[i])
      Fail("{}/config.json: engram_num_embeddings[{}] = {} rows, the primes from engram_vocab_size need {}", model_dir, i,
           config_.engram_num_embeddings[i], hashes[i].table_rows);
    EngramLayer engram{layer_idx, std::move(hashes[i]), Floats(layer.engram_q_weight)};
    const std::vector<float> k_weight = Floats(layer.engram_k_weight);
    for (size_t j = 0; j < k_weight.size(); ++j) engram.qk_weight[j] *= k_weight[j];
    engram_layers_.push_back(std::move(engram));
    tables.push_back(layer.engram_table);
  }
  engram_store_ = std::make_unique<PrivateStore>(std::move(tables));
}

}  // namespace tessera
