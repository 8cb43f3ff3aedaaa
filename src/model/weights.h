// What a model learned. One table derived from the config lists every tensor of a checkpoint (name, dtype, shape, group, shard axis);
// loading claims each tensor from that table, so a wrong, missing or extra tensor is an error that names it. Weights stay where the
// file is mapped: the views below point into it and own nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/quant_view.h"
#include "core/view.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "moe/experts.h"

namespace tessera {

// Who reads a tensor, for the tables of `inspect`, the bytes per token and the regions of the timing table.
enum class WeightGroup : uint8_t {
  kEmbed,
  kHead,
  kNorm,
  kHyperConnection,
  kAttention,
  kCompressor,
  kIndexer,
  kRouter,
  kRoutedExpert,
  kSharedExpert,
  kEngramTable,
  kEngram,
  kDraft
};
constexpr int kNumWeightGroups = 13;
std::string_view WeightGroupName(WeightGroup group);  // "routed experts", as `inspect` prints it

// How ranks divide a tensor: whole copies, or contiguous output rows (never columns: K is not split, docs/architecture.md).
enum class ShardAxis : uint8_t { kNone, kRows };

struct TensorSpec {
  std::string name;
  std::vector<Dtype> dtypes;  // allowed storage, usual one first
  std::vector<int64_t> shape;
  int layer_idx = -1;
  WeightGroup group = WeightGroup::kNorm;
  ShardAxis shard_axis = ShardAxis::kNone;
  int64_t shard_grain = 1;  // ranks cut rows at multiples of this: whole heads, whole output groups
  bool claimed = true;      // false: drafts and the router bias of image tokens, recognised and left alone
};

// How routed experts are stored. Released models pack E2M1; the "-Base" ones hold E4M3 with the block of the dense weights. The tensors
// decide, not a key of the config.
enum class ExpertStorage : uint8_t { kE2M1, kE4M3 };
ExpertStorage StorageOfExperts(const Checkpoint& checkpoint);

// Every tensor of a checkpoint of this config, drafts included, vision not. A quantised weight "x.weight" is directly followed by its
// "x.scale". The visitor form holds one entry at a time: a real model has a hundred thousand.
void VisitTensorTable(const ModelConfig& config, ExpertStorage storage, const std::function<void(const TensorSpec&)>& visit);
std::vector<TensorSpec> TensorTable(const ModelConfig& config, ExpertStorage storage = ExpertStorage::kE2M1);
int64_t TensorBytes(const TensorSpec& spec);  // in the usual storage
// Tensors beside the table that a checkpoint may hold: draft stages (their number and kind differ between revisions) and vision.
bool IsKnownExtra(std::string_view name);

struct HyperConnectionWeights {
  QuantView fn;                  // F32 [2 hc_mult + hc_mult^2, hc_mult * hidden]
  const float* base = nullptr;   // [2 hc_mult + hc_mult^2]
  const float* scale = nullptr;  // [3]
};

// Vectors of BF16 and F32 are pointers into the file where it aligns them; the format promises one byte only, so the others are copied
// when claimed (ModelWeights::aligned_copies). Matrices are read in place at any alignment.
struct CompressorWeights {
  QuantView wkv;               // BF16
  QuantView wgate;             // BF16; rows = 0 for ratio 1
  const float* ape = nullptr;  // V4: F32 [ratio, rows of wkv]
  const bf16* norm = nullptr;  // [head_dim] or [index_head_dim]
};

struct LayerWeights {
  const bf16* attn_norm = nullptr;
  const bf16* ffn_norm = nullptr;
  HyperConnectionWeights hc_attn, hc_ffn;

  QuantView wq_a, wq_b, wkv, wo_a, wo_b;
  const bf16* q_norm = nullptr;
  const bf16* kv_norm = nullptr;
  const float* attn_sink = nullptr;  // [num_attention_heads]

  CompressorWeights compressor;  // where the layer owns compressed KV
  QuantView index_wq_b, index_weights_proj;
  CompressorWeights index_compressor;  // V4 CSA
  QuantView index_wk;                  // V4.1 KV sources: BF16 [index_head_dim, head_dim]
  const bf16* index_k_norm = nullptr;

  QuantView gate;                    // BF16 [n_routed_experts, hidden]
  const float* gate_bias = nullptr;  // [n_routed_experts]; null on hash layers
  const uint8_t* tid2eid = nullptr;  // I64 [vocab_size, num_experts_per_tok], unaligned; hash layers only
  std::vector<ExpertWeights> experts;
  ExpertWeights shared_expert;

  QuantView engram_table;                      // E4M3 [rows, engram_head_dim], block 1 x 32
  QuantView engram_wkv;                        // E4M3 [(hc_mult + 1) * hidden, columns * engram_head_dim]
  QuantView engram_q_weight, engram_k_weight;  // BF16 or F32 [hc_mult, hidden]
};

struct ModelWeights {
  QuantView embed;  // BF16 [vocab_size, hidden]
  QuantView head;   // BF16 [vocab_size, hidden]
  const bf16* norm = nullptr;
  HyperConnectionWeights hc_head = {};  // V4: fn [hc_mult, hc_mult * hidden], base [hc_mult], scale [1]
  std::vector<LayerWeights> layers;
  std::vector<std::unique_ptr<uint8_t[]>> aligned_copies;  // small vectors the file does not align
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
// Everything wrong with the checkpoint against the table: missing, extra, wrong dtype or shape, expert ids out of range, scale byte 255.
// `deep` also reads every code (NaN). Empty = sound; sorted by tensor, at most kProblemsMax. Known extras are not compared with the table.
std::vector<CheckpointProblem> VerifyCheckpoint(const ModelConfig& config, const Checkpoint& checkpoint, bool deep);
// The part that claiming needs: names, dtypes, shapes, and the expert ids of tid2eid, which are used as indices. Reads no other content.
std::vector<CheckpointProblem> VerifyTable(const ModelConfig& config, const Checkpoint& checkpoint);
// One entry more says how many were left out.
constexpr size_t kProblemsMax = 10000;
// What Checkpoint::Open refuses: the first complaint of every shard, and that of the index. Empty when the directory opens.
std::vector<CheckpointProblem> VerifyFiles(const std::string& model_dir);
// Throws Error for the first E8M0 scale of 255 (NaN) in a tensor that ClaimWeights uses; Engram tables are left out, their rows are
// checked when gathered. Reads every scale once, a seventeenth of the experts: for when the weights are prefaulted anyway.
void RefuseNanScales(const Checkpoint& checkpoint);

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
std::vector<GroupTotals> TotalsByGroup(const std::vector<TensorSpec>& table);  // groups without tensors left out, order of WeightGroup
// Bytes of the views that ClaimWeights gives one rank: its rows of sharded tensors, whole ones otherwise, Engram tables included.
int64_t ClaimedBytes(const ModelConfig& config, ClaimOptions options);
// Weight bytes one decoded token reads at batch size `batch` (routed experts: expected number of distinct experts under uniform routing).
struct BytesPerToken {
  int64_t routed = 0, shared = 0, attention = 0, head = 0, engram = 0, other = 0;
  int64_t total() const { return routed + shared + attention + head + engram + other; }
};
BytesPerToken WeightBytesPerStep(const ModelConfig& config, int batch);

}  // namespace tessera
