// What a model learned. One table derived from the config lists every tensor of a checkpoint (name, dtype, shape, group, shard axis);
// loading claims each tensor from that table, so a wrong, missing or extra tensor is an error that names it. Weights stay where the
// file is mapped: the views below point into it and own nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/quant_view.h"
#include "core/view.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "moe/experts.h"

namespace tessera {

// Who reads a tensor, for the tables of `inspect`, the bytes per token and the regions of the timing table.
enum class WeightGroup : uint8_t { kEmbed, kHead, kNorm, kHyperConnection, kAttention, kCompressor, kIndexer, kRouter, kRoutedExpert, kSharedExpert, kEngramTable, kEngram, kDraft };

// How ranks divide a tensor: whole copies, or contiguous output rows (never columns: K is not split, docs/architecture.md).
enum class ShardAxis : uint8_t { kNone, kRows };

struct TensorSpec {
  std::string name;
  std::vector<Dtype> dtypes;  // allowed storage, usual one first
  std::vector<int64_t> shape;
  int layer_idx = -1;
  WeightGroup group = WeightGroup::kNorm;
  ShardAxis shard_axis = ShardAxis::kNone;
  bool claimed = true;  // false: draft tensors, recognised and left alone
};

// Every tensor of a checkpoint of this config in the usual storage, drafts included, vision not.
std::vector<TensorSpec> TensorTable(const ModelConfig& config);

struct HyperConnectionWeights {
  QuantView fn;        // F32 [2 hc_mult + hc_mult^2, hc_mult * hidden]
  const float* base;   // [2 hc_mult + hc_mult^2]
  const float* scale;  // [3]
};

// BF16 vectors are pointers into the file: 2-byte alignment is checked when claimed.
struct CompressorWeights {
  QuantView wkv;                // BF16
  QuantView wgate;              // BF16; rows = 0 for ratio 1
  const float* ape = nullptr;   // V4: F32 [ratio, rows of wkv]
  const bf16* norm = nullptr;   // [head_dim] or [index_head_dim]
};

struct LayerWeights {
  const bf16* attn_norm = nullptr;
  const bf16* ffn_norm = nullptr;
  HyperConnectionWeights hc_attn, hc_ffn;

  QuantView wq_a, wq_b, wkv, wo_a, wo_b;
  const bf16* q_norm = nullptr;
  const bf16* kv_norm = nullptr;
  const float* attn_sink = nullptr;  // [num_attention_heads]

  CompressorWeights compressor;        // where the layer owns compressed KV
  QuantView index_wq_b, index_weights_proj;
  CompressorWeights index_compressor;  // V4 CSA
  QuantView index_wk;                  // V4.1 KV sources: BF16 [index_head_dim, head_dim]
  const bf16* index_k_norm = nullptr;

  QuantView gate;                      // BF16 [n_routed_experts, hidden]
  const float* gate_bias = nullptr;    // [n_routed_experts]; null on hash layers
  const uint8_t* tid2eid = nullptr;    // I64 [vocab_size, num_experts_per_tok], unaligned; hash layers only
  std::vector<ExpertWeights> experts;
  ExpertWeights shared_expert;

  QuantView engram_table;              // E4M3 [rows, engram_head_dim], block 1 x 32
  QuantView engram_wkv;                // E4M3 [(hc_mult + 1) * hidden, columns * engram_head_dim]
  QuantView engram_q_weight, engram_k_weight;  // BF16 or F32 [hc_mult, hidden]
};

struct ModelWeights {
  QuantView embed;  // BF16 [vocab_size, hidden]
  QuantView head;   // BF16 [vocab_size, hidden]
  const bf16* norm = nullptr;
  HyperConnectionWeights hc_head = {};  // V4: fn [hc_mult, hc_mult * hidden], base [hc_mult], scale [1]
  std::vector<LayerWeights> layers;
};

// Rows of `num_rows` that `rank` of `ranks` owns: contiguous, cut at multiples of `grain`.
struct RowShard {
  int64_t first = 0;
  int64_t count = 0;
};
RowShard ShardRows(int64_t num_rows, int rank, int ranks, int64_t grain);

struct CheckpointProblem {
  std::string tensor;
  std::string message;  // a whole sentence, names the tensor and the file
};
// Everything wrong with the checkpoint against the table: missing, extra, wrong dtype or shape, scale byte 255. `deep` also reads every
// code (NaN). Empty = sound. Vision tensors are known extras.
std::vector<CheckpointProblem> VerifyCheckpoint(const ModelConfig& config, const Checkpoint& checkpoint, bool deep);

struct ClaimOptions {
  int rank = 0;
  int ranks = 1;
};
// Claims every tensor the forward pass needs. Throws Error naming the first problem. `checkpoint` must outlive the result.
// Logs one line with the number of draft and vision tensors that were recognised and skipped.
ModelWeights ClaimWeights(const ModelConfig& config, const Checkpoint& checkpoint, ClaimOptions options);

struct GroupTotals {
  WeightGroup group;
  int64_t num_tensors = 0;
  int64_t bytes = 0;
};
std::vector<GroupTotals> TotalsByGroup(const std::vector<TensorSpec>& table);
// Weight bytes one decoded token reads at batch size `batch` (routed experts: expected number of distinct experts under uniform routing).
struct BytesPerToken {
  int64_t routed = 0, shared = 0, attention = 0, head = 0, engram = 0, other = 0;
  int64_t total() const { return routed + shared + attention + head + engram + other; }
};
BytesPerToken WeightBytesPerStep(const ModelConfig& config, int batch);

}  // namespace tessera
