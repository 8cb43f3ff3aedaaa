// The table of tensors: one place that knows every name, dtype and shape, from which claims, checks, totals and traffic follow.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "model/weights.h"

namespace tessera {
namespace {

int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// Emits the tensors of one model, one after the other.
class TableWriter {
 public:
  TableWriter(const ModelConfig& config, ExpertStorage storage, const std::function<void(const TensorSpec&)>& visit)
      : config_(config), storage_(storage), visit_(visit) {}

  void WriteAll() {
    WriteGlobals();
    for (int layer_idx = 0; layer_idx < config_.num_hidden_layers; ++layer_idx) {
      layer_idx_ = layer_idx;
      prefix_ = fmt::format("layers.{}.", layer_idx);
      WriteBlock(config_.n_routed_experts, layer_idx < config_.num_hash_layers);
      if (config_.v41()) {
        WriteSourcesV41();
      } else {
        WriteCompressorsV4();
      }
      if (config_.IsEngramLayer(layer_idx)) WriteEngram();
    }
    layer_idx_ = -1;
    draft_ = true;
    for (int stage = 0; stage < config_.num_nextn_predict_layers; ++stage) {
      prefix_ = fmt::format("mtp.{}.", stage);
      WriteDraft(stage);
    }
  }

 private:
  // Where a tensor belongs and how ranks cut it.
  struct Place {
    WeightGroup group;
    ShardAxis axis = ShardAxis::kNone;
    int64_t grain = 1;
  };
  static Place Rows(WeightGroup group, int64_t grain = 1) { return {group, ShardAxis::kRows, grain}; }

  void Add(std::string_view name, std::vector<Dtype> dtypes, std::vector<int64_t> shape, Place place) {
    TensorSpec spec;
    spec.name = prefix_;
    spec.name += name;
    spec.dtypes = std::move(dtypes);
    spec.shape = std::move(shape);
    spec.layer_idx = layer_idx_;
    spec.group = draft_ ? WeightGroup::kDraft : place.group;
    spec.shard_axis = draft_ ? ShardAxis::kNone : place.axis;
    spec.shard_grain = place.grain;
    spec.claimed = !draft_ && name != "ffn.gate.bias_vl";
    visit_(spec);
  }
  void AddBf16(std::string_view name, std::vector<int64_t> shape, Place place) { Add(name, {Dtype::kBF16}, std::move(shape), place); }
  void AddF32(std::string_view name, std::vector<int64_t> shape, Place place) { Add(name, {Dtype::kF32}, std::move(shape), place); }
  // An e4m3 weight and its block scales. Some tools store the exponent bytes as U8.
  void AddE4m3(const std::string& name, int64_t rows, int64_t cols, Place place) {
    Add(name + ".weight", {Dtype::kF8E4M3}, {rows, cols}, place);
    Add(name + ".scale", {Dtype::kF8E8M0, Dtype::kU8}, {CeilDiv(rows, config_.weight_block_rows), CeilDiv(cols, config_.weight_block_cols)},
        place);
  }
  void AddExpertMatrix(const std::string& name, int64_t rows, int64_t cols) {
    const Place place = Rows(WeightGroup::kRoutedExpert);
    if (storage_ == ExpertStorage::kE4M3) return AddE4m3(name, rows, cols, place);
    Add(name + ".weight", {Dtype::kI8, Dtype::kU8}, {rows, cols / 2}, place);
    Add(name + ".scale", {Dtype::kF8E8M0, Dtype::kU8}, {rows, cols / 32}, place);
  }

  void WriteGlobals() {
    const int64_t hidden = config_.hidden_size;
    AddBf16("embed.weight", {config_.vocab_size, hidden}, {WeightGroup::kEmbed});
    AddBf16("head.weight", {config_.vocab_size, hidden}, Rows(WeightGroup::kHead));
    AddBf16("norm.weight", {hidden}, {WeightGroup::kNorm});
    if (!config_.v41()) WriteHeadMix();
  }

  // V4's trained output collapse: four rows, too few to be worth a gather.
  void WriteHeadMix() {
    AddF32("hc_head_fn", {config_.hc_mult, config_.hc_mult * config_.hidden_size}, {WeightGroup::kHyperConnection});
    AddF32("hc_head_base", {config_.hc_mult}, {WeightGroup::kHyperConnection});
    AddF32("hc_head_scale", {1}, {WeightGroup::kHyperConnection});
  }

  // What every layer and every draft stage has.
  void WriteBlock(int num_experts, bool routed_by_token_id) {
    const int64_t hidden = config_.hidden_size;
    const int64_t num_mixes = int64_t{2} * config_.hc_mult + config_.hc_mult * config_.hc_mult;
    AddBf16("attn_norm.weight", {hidden}, {WeightGroup::kNorm});
    AddBf16("ffn_norm.weight", {hidden}, {WeightGroup::kNorm});
    for (const char* site : {"hc_attn", "hc_ffn"}) {
      AddF32(fmt::format("{}_fn", site), {num_mixes, config_.hc_mult * hidden}, Rows(WeightGroup::kHyperConnection));
      AddF32(fmt::format("{}_base", site), {num_mixes}, {WeightGroup::kHyperConnection});
      AddF32(fmt::format("{}_scale", site), {3}, {WeightGroup::kHyperConnection});
    }
    WriteAttention();
    AddBf16("ffn.gate.weight", {num_experts, hidden}, Rows(WeightGroup::kRouter));
    if (routed_by_token_id) {
      Add("ffn.gate.tid2eid", {Dtype::kI64}, {config_.vocab_size, config_.num_experts_per_tok}, {WeightGroup::kRouter});
    } else {
      AddF32("ffn.gate.bias", {num_experts}, {WeightGroup::kRouter});
    }
    if (config_.v41()) AddF32("ffn.gate.bias_vl", {num_experts}, {WeightGroup::kRouter});
    const int64_t width = config_.moe_intermediate_size;
    for (int expert_idx = 0; expert_idx < num_experts; ++expert_idx) {
      const std::string expert = fmt::format("ffn.experts.{}.", expert_idx);
      AddExpertMatrix(expert + "w1", width, hidden);
      AddExpertMatrix(expert + "w2", hidden, width);
      AddExpertMatrix(expert + "w3", width, hidden);
    }
    AddE4m3("ffn.shared_experts.w1", width, hidden, Rows(WeightGroup::kSharedExpert));
    AddE4m3("ffn.shared_experts.w2", hidden, width, Rows(WeightGroup::kSharedExpert));
    AddE4m3("ffn.shared_experts.w3", width, hidden, Rows(WeightGroup::kSharedExpert));
  }

  void WriteAttention() {
    const int64_t hidden = config_.hidden_size;
    const int64_t q_width = config_.num_attention_heads * config_.head_dim;
    const int64_t group_width = q_width / config_.o_groups;
    const int64_t o_rank = config_.o_groups * config_.o_lora_rank;
    AddF32("attn.attn_sink", {config_.num_attention_heads}, {WeightGroup::kAttention});
    AddE4m3("attn.wq_a", config_.q_lora_rank, hidden, Rows(WeightGroup::kAttention));
    AddBf16("attn.q_norm.weight", {config_.q_lora_rank}, {WeightGroup::kAttention});
    // A rank computes whole output groups: their heads, and their rows of wo_a.
    AddE4m3("attn.wq_b", q_width, config_.q_lora_rank, Rows(WeightGroup::kAttention, group_width));
    AddE4m3("attn.wkv", config_.head_dim, hidden, Rows(WeightGroup::kAttention));
    AddBf16("attn.kv_norm.weight", {config_.head_dim}, {WeightGroup::kAttention});
    AddE4m3("attn.wo_a", o_rank, group_width, Rows(WeightGroup::kAttention, config_.o_lora_rank));
    AddE4m3("attn.wo_b", hidden, o_rank, Rows(WeightGroup::kAttention));
  }

  // Ratio 4 overlaps its windows, so its rows come in two halves.
  void WriteCompressorsV4() {
    const int64_t ratio = config_.compress_ratios[static_cast<size_t>(layer_idx_)];
    if (ratio == 0) return;
    const int64_t num_halves = ratio == 4 ? 2 : 1;
    WriteCompressor("attn.compressor.", num_halves * config_.head_dim, WeightGroup::kCompressor);
    AddF32("attn.compressor.ape", {ratio, num_halves * config_.head_dim}, {WeightGroup::kCompressor});
    AddBf16("attn.compressor.norm.weight", {config_.head_dim}, {WeightGroup::kCompressor});
    if (!config_.HasIndexer(layer_idx_)) return;
    WriteIndexQueries();
    WriteCompressor("attn.indexer.compressor.", num_halves * config_.index_head_dim, WeightGroup::kIndexer);
    AddF32("attn.indexer.compressor.ape", {ratio, num_halves * config_.index_head_dim}, {WeightGroup::kIndexer});
    AddBf16("attn.indexer.compressor.norm.weight", {config_.index_head_dim}, {WeightGroup::kIndexer});
  }
  void WriteCompressor(const std::string& name, int64_t rows, WeightGroup group) {
    AddBf16(name + "wkv.weight", {rows, config_.hidden_size}, Rows(group));
    AddBf16(name + "wgate.weight", {rows, config_.hidden_size}, Rows(group));
  }
  void WriteIndexQueries() {
    const int64_t rows = config_.index_n_heads * config_.index_head_dim;
    AddE4m3("attn.indexer.wq_b", rows, config_.q_lora_rank, Rows(WeightGroup::kIndexer, config_.index_head_dim));
    AddBf16("attn.indexer.weights_proj.weight", {config_.index_n_heads, config_.hidden_size}, Rows(WeightGroup::kIndexer));
  }

  void WriteSourcesV41() {
    if (config_.IsKvSource(layer_idx_)) {
      const std::vector<int64_t> shape = {config_.head_dim, config_.hidden_size};
      AddBf16("attn.compressor.wkv.weight", shape, Rows(WeightGroup::kCompressor));
      AddBf16("attn.compressor.norm.weight", {config_.head_dim}, {WeightGroup::kCompressor});
      if (config_.compress_ratios[static_cast<size_t>(layer_idx_)] > 1)
        AddBf16("attn.compressor.wgate.weight", shape, Rows(WeightGroup::kCompressor));
      // Applied to finished entries, which every rank holds: too small to be worth a gather.
      AddBf16("attn.indexer.wk.weight", {config_.index_head_dim, config_.head_dim}, {WeightGroup::kIndexer});
      AddBf16("attn.indexer.k_norm.weight", {config_.index_head_dim}, {WeightGroup::kIndexer});
    }
    if (config_.IsIndexSource(layer_idx_)) WriteIndexQueries();
  }

  void WriteEngram() {
    const size_t table_idx = static_cast<size_t>(
        std::lower_bound(config_.engram_layer_ids.begin(), config_.engram_layer_ids.end(), layer_idx_) - config_.engram_layer_ids.begin());
    const int64_t num_rows = config_.engram_num_embeddings[table_idx];
    const int64_t hidden = config_.hidden_size;
    // One requantised derivative stores these two in F32.
    Add("engram.q_weight", {Dtype::kBF16, Dtype::kF32}, {config_.hc_mult, hidden}, {WeightGroup::kEngram});
    Add("engram.k_weight", {Dtype::kBF16, Dtype::kF32}, {config_.hc_mult, hidden}, {WeightGroup::kEngram});
    AddE4m3("engram.wkv", (config_.hc_mult + 1) * hidden, config_.engram_columns() * config_.engram_head_dim, Rows(WeightGroup::kEngram));
    // Scales are per row and 32 columns here, whatever the block of the linears. How ranks share the tables is the store's affair.
    Add("engram.embed.weight", {Dtype::kF8E4M3}, {num_rows, config_.engram_head_dim}, {WeightGroup::kEngramTable});
    Add("engram.embed.scale", {Dtype::kF8E8M0, Dtype::kU8}, {num_rows, config_.engram_head_dim / 32}, {WeightGroup::kEngramTable});
  }

  void WriteDraft(int stage) {
    const int64_t hidden = config_.hidden_size;
    const Place place = {WeightGroup::kDraft};
    WriteBlock(config_.v41() ? config_.dspark_n_routed_experts : config_.n_routed_experts, false);
    if (!config_.v41()) {
      AddE4m3("e_proj", hidden, hidden, place);
      AddE4m3("h_proj", hidden, hidden, place);
      for (const char* norm : {"enorm.weight", "hnorm.weight", "norm.weight"}) AddBf16(norm, {hidden}, place);
      WriteHeadMix();
      return;
    }
    if (stage == 0) {
      AddE4m3("main_proj", hidden, hidden * config_.dspark_num_target_layers, place);
      AddBf16("main_norm.weight", {hidden}, place);
    }
    if (stage == config_.num_nextn_predict_layers - 1) {
      AddBf16("norm.weight", {hidden}, place);
      AddBf16("markov_head.embed.weight", {config_.vocab_size, config_.dspark_markov_rank}, place);
      AddBf16("markov_head.head.weight", {config_.vocab_size, config_.dspark_markov_rank}, place);
      AddBf16("confidence_head.proj.weight", {1, hidden + config_.dspark_markov_rank}, place);
    }
  }

  const ModelConfig& config_;
  const ExpertStorage storage_;
  const std::function<void(const TensorSpec&)>& visit_;
  std::string prefix_;
  int layer_idx_ = -1;
  bool draft_ = false;
};

constexpr std::array<std::string_view, kNumWeightGroups> kGroupNames = {
    "embedding", "head",           "norms",          "hyper-connections", "attention", "compressors", "indexers",
    "routers",   "routed experts", "shared experts", "Engram tables",     "Engram",    "drafts"};

}  // namespace

std::string_view WeightGroupName(WeightGroup group) { return kGroupNames[static_cast<size_t>(group)]; }

void VisitTensorTable(const ModelConfig& config, ExpertStorage storage, const std::function<void(const TensorSpec&)>& visit) {
  TableWriter(config, storage, visit).WriteAll();
}

std::vector<TensorSpec> TensorTable(const ModelConfig& config, ExpertStorage storage) {
  std::vector<TensorSpec> table;
  VisitTensorTable(config, storage, [&](const TensorSpec& spec) { table.push_back(spec); });
  return table;
}

int64_t TensorBytes(const TensorSpec& spec) {
  int64_t bytes = DtypeBytes(spec.dtypes.front());
  for (const int64_t dim : spec.shape) bytes *= dim;
  return bytes;
}

bool IsKnownExtra(std::string_view name) {
  constexpr std::array<std::string_view, 4> kPrefixes = {"mtp.", "vision.", "aligner.", "image_"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view prefix) { return name.starts_with(prefix); });
}

ExpertStorage StorageOfExperts(const Checkpoint& checkpoint) {
  const TensorData* weight = checkpoint.Find("layers.0.ffn.experts.0.w1.weight");
  return weight != nullptr && weight->dtype == Dtype::kF8E4M3 ? ExpertStorage::kE4M3 : ExpertStorage::kE2M1;
}

RowShard ShardRows(int64_t num_rows, int rank, int ranks, int64_t grain) {
  TSR_CHECK(num_rows >= 0 && grain > 0 && ranks > 0 && rank >= 0 && rank < ranks, "{} rows, rank {} of {}, grain {}", num_rows, rank, ranks,
            grain);
  const int64_t num_grains = CeilDiv(num_rows, grain);
  const int64_t begin = std::min(num_rows, num_grains * rank / ranks * grain);
  const int64_t end = std::min(num_rows, num_grains * (rank + 1) / ranks * grain);
  return {begin, end - begin};
}

std::vector<GroupTotals> TotalsByGroup(const std::vector<TensorSpec>& table) {
  std::array<GroupTotals, kNumWeightGroups> totals = {};
  for (const TensorSpec& spec : table) {
    GroupTotals& group = totals[static_cast<size_t>(spec.group)];
    group.num_tensors += 1;
    group.bytes += TensorBytes(spec);
  }
  std::vector<GroupTotals> present;
  for (size_t i = 0; i < totals.size(); ++i) {
    totals[i].group = static_cast<WeightGroup>(i);
    if (totals[i].num_tensors > 0) present.push_back(totals[i]);
  }
  return present;
}

int64_t ClaimedBytes(const ModelConfig& config, ClaimOptions options) {
  int64_t bytes = 0;
  RowShard shard;           // of the weight a scale follows
  int64_t weight_rows = 1;  // rows of that weight
  VisitTensorTable(config, ExpertStorage::kE2M1, [&](const TensorSpec& spec) {
    if (!spec.claimed) return;
    if (spec.shard_axis == ShardAxis::kNone) {
      bytes += TensorBytes(spec);
      return;
    }
    const int64_t row_bytes = TensorBytes(spec) / spec.shape[0];
    if (!spec.name.ends_with(".scale")) {
      weight_rows = spec.shape[0];
      shard = ShardRows(weight_rows, options.rank, options.ranks, spec.shard_grain);
      bytes += shard.count * row_bytes;
      return;
    }
    // Scale rows that cover the shard; neighbours share the row of a block that a cut goes through.
    const int64_t block_rows = spec.shape[0] == weight_rows ? 1 : config.weight_block_rows;
    if (shard.count > 0) bytes += (CeilDiv(shard.first + shard.count, block_rows) - shard.first / block_rows) * row_bytes;
  });
  return bytes;
}

BytesPerToken WeightBytesPerStep(const ModelConfig& config, int batch) {
  TSR_CHECK(batch >= 1, "batch {}", batch);
  BytesPerToken bytes;
  int64_t all_experts = 0;
  VisitTensorTable(config, ExpertStorage::kE2M1, [&](const TensorSpec& spec) {
    const int64_t size = TensorBytes(spec);
    switch (spec.group) {
      case WeightGroup::kRoutedExpert:
        all_experts += size;
        break;
      case WeightGroup::kSharedExpert:
        bytes.shared += size;
        break;
      case WeightGroup::kAttention:
      case WeightGroup::kCompressor:
      case WeightGroup::kIndexer:
        bytes.attention += size;
        break;
      case WeightGroup::kHead:
        bytes.head += size;
        break;
      case WeightGroup::kEngram:
        bytes.engram += size;
        break;
      // Of a table, each token reads its rows; counted as if no two tokens shared one.
      case WeightGroup::kEngramTable:
        bytes.engram += size / spec.shape[0] * config.engram_columns() * batch;
        break;
      case WeightGroup::kNorm:
      case WeightGroup::kHyperConnection:
        bytes.other += size;
        break;
      // One row of the embedding and of tid2eid a token is nothing; the biases count whole.
      case WeightGroup::kRouter:
        bytes.other += spec.name.ends_with("tid2eid") ? 0 : size;
        break;
      case WeightGroup::kEmbed:
      case WeightGroup::kDraft:
        break;
    }
  });
  // Distinct experts of a layer, when `batch` tokens each choose num_experts_per_tok of n_routed_experts uniformly.
  const double chosen = static_cast<double>(config.num_experts_per_tok) / config.n_routed_experts;
  bytes.routed = std::llround(static_cast<double>(all_experts) * (1 - std::pow(1 - chosen, batch)));
  return bytes;
}

}  // namespace tessera
