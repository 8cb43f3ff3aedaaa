// What a model is: the fields of config.json, read once, every relation between them checked, immutable afterwards.
// V4's file is flat; V4.1 nests the text fields under text_config. Names are those of the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace tessera {

enum class Architecture { kDeepseekV4, kDeepseekV41 };

struct RopeScaling {
  bool present = false;
  float factor = 1;
  float beta_fast = 32;
  float beta_slow = 1;
  int64_t original_max_position_embeddings = 0;
};

struct ModelConfig {
  Architecture architecture = Architecture::kDeepseekV4;

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int64_t head_dim = 0;
  int64_t qk_rope_head_dim = 0;  // the last dims of a head
  int64_t q_lora_rank = 0;
  int64_t o_lora_rank = 0;
  int o_groups = 0;
  int64_t sliding_window = 0;
  std::vector<int> compress_ratios;  // [num_hidden_layers]; entries for drafts are cut off
  int index_n_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;
  int hc_mult = 0;
  int hc_sinkhorn_iters = 0;
  float hc_eps = 0;
  float rms_norm_eps = 0;
  float rope_theta = 0;
  float compress_rope_theta = 0;
  RopeScaling rope_scaling;
  int64_t max_position_embeddings = 0;

  int num_hash_layers = 0;  // V4: the first layers are routed by token id
  int n_routed_experts = 0;
  int n_shared_experts = 0;
  int num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;
  float routed_scaling_factor = 1;
  float swiglu_limit = 0;

  // V4.1 only.
  std::vector<int> kv_source_layer_ids;
  std::vector<int> index_source_layer_ids;
  int candidate_source_layer_id = -1;
  int64_t candidate_topk_blocks = 0;
  int64_t candidate_block_size = 0;
  std::vector<int> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;  // table rows, one entry per engram layer
  int engram_max_ngram_size = 0;
  int64_t engram_vocab_size = 0;
  int engram_n_heads = 0;
  int64_t engram_head_dim = 0;
  int64_t engram_pad_token_id = 0;
  int64_t engram_compressed_vocab_size = 0;
  // Draft stages (dspark_*), needed only to recognise their tensors.
  int num_nextn_predict_layers = 0;
  int dspark_n_routed_experts = 0;
  int64_t dspark_markov_rank = 0;
  int dspark_num_target_layers = 0;

  // quantization_config
  int32_t weight_block_rows = 0;
  int32_t weight_block_cols = 0;

  int64_t bos_token_id = 0;
  std::vector<int64_t> eos_token_ids;

  bool v41() const { return architecture == Architecture::kDeepseekV41; }
  bool IsEngramLayer(int layer_idx) const;
  bool IsKvSource(int layer_idx) const;                           // V4.1: owns a compressor and index keys
  bool IsIndexSource(int layer_idx) const;                        // V4.1: owns an indexer
  bool HasIndexer(int layer_idx) const;                           // V4: ratio 4; V4.1: IsIndexSource
  int64_t activation_block() const { return weight_block_cols; }  // block of Q8 on linear inputs under --numerics reference
  int engram_columns() const { return (engram_max_ngram_size - 1) * engram_n_heads; }
};

// Bounds on the size of a model, several times those of V4-Pro: with them no product of sizes overflows int64, and the table of tensors
// of a hostile config stays within a second and a few hundred megabytes.
constexpr int kLayersMax = 1024;
constexpr int kExpertsMax = 4096;
constexpr int64_t kLayersTimesExpertsMax = 65536;
// Vectors that ops keep on the stack.
constexpr int64_t kRopeDimsMax = 1024;
constexpr int64_t kIndexHeadDimMax = 1024;

// Throws Error "<what>: field: reason" for a missing, mistyped or contradictory field.
ModelConfig ParseModelConfig(const Json& json, const std::string& what);
ModelConfig ReadModelConfig(const std::string& model_dir);

}  // namespace tessera
