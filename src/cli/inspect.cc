// `tessera inspect`: what a model is. Reads config.json, and the headers of the shards where there are any; no weight is touched.
#include <filesystem>
#include <map>
#include <memory>

#include "cli/commands.h"
#include "cli/output.h"
#include "core/json.h"
#include "model/forward.h"
#include "model/weights.h"

namespace tessera {
namespace {

struct InspectOptions {
  int batch = 8;
  int ranks = 1;
};

struct GroupLine {
  int64_t num_tensors = 0;
  int64_t bytes = 0;
};

// What is printed, gathered before a word of it is.
struct Summary {
  ModelConfig config;
  bool has_weights = false;
  std::vector<std::pair<std::string, GroupLine>> groups;
  GroupLine total;
  BytesPerToken at_one, at_batch;
  double kv_bytes_per_token = 0;
  int64_t ring_bytes_per_sequence = 0;  // windows and the rows a compressor still waits to pool
  int64_t full_context_bytes = 0;       // pages of one sequence of max_position_embeddings tokens
  std::vector<int64_t> rank_bytes;
};

bool HasWeights(const std::string& model_dir) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(model_dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name == "model.safetensors.index.json") return true;
  }
  return false;
}

// The tensors that are there, under the groups the table gives them.
void SumFiles(const std::string& model_dir, Summary& summary) {
  const Checkpoint checkpoint = Checkpoint::Open(model_dir);
  std::map<std::string_view, WeightGroup> group_of;
  VisitTensorTable(summary.config, StorageOfExperts(checkpoint), [&](const TensorSpec& spec) {
    const auto found = checkpoint.tensors().find(spec.name);
    if (found != checkpoint.tensors().end()) group_of[found->first] = spec.group;
  });
  std::map<WeightGroup, GroupLine> groups;
  GroupLine vision, unknown;
  for (const auto& [name, data] : checkpoint.tensors()) {
    const auto found = group_of.find(name);
    GroupLine& line = found != group_of.end()    ? groups[found->second]
                      : name.starts_with("mtp.") ? groups[WeightGroup::kDraft]
                      : IsKnownExtra(name)       ? vision
                                                 : unknown;
    line.num_tensors += 1;
    line.bytes += static_cast<int64_t>(data.bytes.size());
  }
  for (const auto& [group, line] : groups) summary.groups.emplace_back(WeightGroupName(group), line);
  if (vision.num_tensors > 0) summary.groups.emplace_back("vision", vision);
  if (unknown.num_tensors > 0) summary.groups.emplace_back("not of this model", unknown);
}

void SumTable(Summary& summary) {
  for (const GroupTotals& group : TotalsByGroup(TensorTable(summary.config))) {
    summary.groups.emplace_back(WeightGroupName(group.group), GroupLine{group.num_tensors, group.bytes});
  }
}

Summary Summarize(const std::string& model_dir, const InspectOptions& options) {
  Summary summary;
  summary.config = ReadModelConfig(model_dir);
  summary.has_weights = HasWeights(model_dir);
  if (summary.has_weights) {
    SumFiles(model_dir, summary);
  } else {
    SumTable(summary);
  }
  for (const auto& [name, line] : summary.groups) {
    summary.total.num_tensors += line.num_tensors;
    summary.total.bytes += line.bytes;
  }
  summary.at_one = WeightBytesPerStep(summary.config, 1);
  summary.at_batch = WeightBytesPerStep(summary.config, options.batch);
  // Decode alone: one row a step. Rings do not grow with the context, everything else gains a row every `ratio` tokens.
  const std::vector<CacheLayout> layouts = CacheLayouts(summary.config, Numerics::kBf16, {summary.config.max_position_embeddings, 1});
  summary.full_context_bytes = ResidentBytes(layouts, summary.config.max_position_embeddings);
  for (const CacheLayout& layout : layouts) {
    if (layout.ring_tokens > 0) {
      summary.ring_bytes_per_sequence += layout.rows_per_slot * layout.row_bytes;
    } else {
      summary.kv_bytes_per_token += static_cast<double>(layout.row_bytes) / layout.ratio;
    }
  }
  for (int rank = 0; rank < options.ranks; ++rank) summary.rank_bytes.push_back(ClaimedBytes(summary.config, {rank, options.ranks}));
  return summary;
}

std::string ArchitectureName(const ModelConfig& config) { return config.v41() ? "deepseek_v41" : "deepseek_v4"; }

Json ToJson(const BytesPerToken& bytes) {
  return {{"routed", bytes.routed}, {"shared", bytes.shared}, {"attention", bytes.attention}, {"head", bytes.head},
          {"engram", bytes.engram}, {"other", bytes.other},   {"total", bytes.total()}};
}

Json ConfigToJson(const ModelConfig& config) {
  Json json = {{"model_type", ArchitectureName(config)},
               {"vocab_size", config.vocab_size},
               {"hidden_size", config.hidden_size},
               {"num_hidden_layers", config.num_hidden_layers},
               {"num_attention_heads", config.num_attention_heads},
               {"head_dim", config.head_dim},
               {"sliding_window", config.sliding_window},
               {"compress_ratios", config.compress_ratios},
               {"n_routed_experts", config.n_routed_experts},
               {"num_experts_per_tok", config.num_experts_per_tok},
               {"moe_intermediate_size", config.moe_intermediate_size},
               {"index_topk", config.index_topk},
               {"max_position_embeddings", config.max_position_embeddings},
               {"weight_block_size", {config.weight_block_rows, config.weight_block_cols}}};
  if (config.v41()) {
    json["kv_source_layer_ids"] = config.kv_source_layer_ids;
    json["index_source_layer_ids"] = config.index_source_layer_ids;
    json["candidate_source_layer_id"] = config.candidate_source_layer_id;
  } else {
    json["num_hash_layers"] = config.num_hash_layers;
  }
  return json;
}

int64_t EngramRowBytes(const ModelConfig& config) { return config.engram_head_dim + config.engram_head_dim / 32; }

Json ToJson(const std::string& model_dir, const Summary& summary, const InspectOptions& options) {
  Json json = {{"model", model_dir}, {"weights_present", summary.has_weights}, {"config", ConfigToJson(summary.config)}};
  json["groups"] = Json::array();
  for (const auto& [name, line] : summary.groups)
    json["groups"].push_back({{"name", name}, {"tensors", line.num_tensors}, {"bytes", line.bytes}});
  json["tensors"] = summary.total.num_tensors;
  json["bytes"] = summary.total.bytes;
  json["bytes_per_token_batch_1"] = ToJson(summary.at_one);
  json["batch"] = options.batch;
  json["bytes_per_step_at_batch"] = ToJson(summary.at_batch);
  json["bytes_per_token_at_batch"] = summary.at_batch.total() / options.batch;
  json["kv_bytes_per_token"] = summary.kv_bytes_per_token;
  json["ring_bytes_per_sequence"] = summary.ring_bytes_per_sequence;
  json["full_context_bytes"] = summary.full_context_bytes;
  json["engram_tables"] = Json::array();
  for (size_t i = 0; i < summary.config.engram_layer_ids.size(); ++i) {
    const int64_t rows = summary.config.engram_num_embeddings[i];
    json["engram_tables"].push_back({{"layer", summary.config.engram_layer_ids[i]},
                                     {"rows", rows},
                                     {"row_bytes", EngramRowBytes(summary.config)},
                                     {"bytes", rows * EngramRowBytes(summary.config)},
                                     {"rows_per_token", summary.config.engram_columns()}});
  }
  json["rank_bytes"] = summary.rank_bytes;
  return json;
}

// "509.32 GB": decimal, as checkpoints are published.
std::string Size(int64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", value / 1e9);
  if (bytes >= 1'000'000) return fmt::format("{:.2f} MB", value / 1e6);
  if (bytes >= 1'000) return fmt::format("{:.2f} kB", value / 1e3);
  return fmt::format("{} B", bytes);
}

// "2 layers with the window alone, 20 with ratio 1, 18 with ratio 2".
std::string RatioText(const ModelConfig& config) {
  std::map<int, int> counts;
  for (const int ratio : config.compress_ratios) ++counts[ratio];
  std::vector<std::string> parts;
  for (const auto& [ratio, count] : counts) {
    parts.push_back(ratio == 0 ? fmt::format("{} layers with the window alone", count) : fmt::format("{} with ratio {}", count, ratio));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

void PrintConfig(const std::string& model_dir, const Summary& summary) {
  const ModelConfig& config = summary.config;
  Print(fmt::format("{}: {}, {} layers, hidden {}, vocabulary {}, context {}\n", model_dir, ArchitectureName(config),
                    config.num_hidden_layers, config.hidden_size, config.vocab_size, config.max_position_embeddings));
  Print(fmt::format("attention: {} heads of {} ({} rotated), window {}; {}\n", config.num_attention_heads, config.head_dim,
                    config.qk_rope_head_dim, config.sliding_window, RatioText(config)));
  Print(fmt::format("indexer: {} heads of {}, top {} entries", config.index_n_heads, config.index_head_dim, config.index_topk));
  if (config.v41()) {
    Print(fmt::format("; KV sources {}; index sources {}", fmt::join(config.kv_source_layer_ids, " "),
                      fmt::join(config.index_source_layer_ids, " ")));
    if (config.candidate_source_layer_id >= 0) {
      Print(fmt::format("; from layer {} on, {} blocks of {} are candidates", config.candidate_source_layer_id,
                        config.candidate_topk_blocks, config.candidate_block_size));
    }
  }
  Print(fmt::format("\nexperts: {} a layer, {} per token and {} shared, width {}", config.n_routed_experts, config.num_experts_per_tok,
                    config.n_shared_experts, config.moe_intermediate_size));
  if (config.num_hash_layers > 0) Print(fmt::format("; the first {} layers are routed by token id", config.num_hash_layers));
  Print(fmt::format("\nweights: e4m3 in blocks of {} x {}, experts decided by their dtype\n", config.weight_block_rows,
                    config.weight_block_cols));
}

void PrintTraffic(const char* label, const BytesPerToken& bytes) {
  Print(fmt::format("{}: {}  (routed experts {}, shared {}, attention {}, head {}, Engram {}, other {})\n", label, Size(bytes.total()),
                    Size(bytes.routed), Size(bytes.shared), Size(bytes.attention), Size(bytes.head), Size(bytes.engram),
                    Size(bytes.other)));
}

void PrintText(const std::string& model_dir, const Summary& summary, const InspectOptions& options) {
  PrintConfig(model_dir, summary);
  Print(summary.has_weights ? "\ntensors in the files\n" : "\ntensors that config.json asks for (this directory holds no weights)\n");
  for (const auto& [name, line] : summary.groups) Print(fmt::format("  {:<18} {:>8}  {:>12}\n", name, line.num_tensors, Size(line.bytes)));
  Print(fmt::format("  {:<18} {:>8}  {:>12}  ({} bytes)\n\n", "total", summary.total.num_tensors, Size(summary.total.bytes),
                    summary.total.bytes));
  PrintTraffic("weight bytes per token at batch 1", summary.at_one);
  PrintTraffic(fmt::format("weight bytes per step at batch {}", options.batch).c_str(), summary.at_batch);
  Print(fmt::format("  per token {}; routed experts as expected when tokens choose evenly\n",
                    Size(summary.at_batch.total() / options.batch)));
  Print(fmt::format("KV cache: {:g} bytes per token of context, and {} per sequence for windows and pending rows; {} for {} tokens\n",
                    summary.kv_bytes_per_token, Size(summary.ring_bytes_per_sequence), Size(summary.full_context_bytes),
                    summary.config.max_position_embeddings));
  for (size_t i = 0; i < summary.config.engram_layer_ids.size(); ++i) {
    const int64_t rows = summary.config.engram_num_embeddings[i];
    Print(fmt::format("Engram table of layer {}: {} rows of {} bytes, {}; {} rows per token\n", summary.config.engram_layer_ids[i], rows,
                      EngramRowBytes(summary.config), Size(rows * EngramRowBytes(summary.config)), summary.config.engram_columns()));
  }
  if (options.ranks == 1) return;
  for (size_t rank = 0; rank < summary.rank_bytes.size(); ++rank) {
    Print(fmt::format("rank {} of {}: maps {} of weights, Engram tables included\n", rank, options.ranks, Size(summary.rank_bytes[rank])));
  }
}

}  // namespace

void AddInspectCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("inspect", "shows what a model is: config, tensors by group, bytes per token, KV bytes, Engram tables");
  const auto options = std::make_shared<InspectOptions>();
  command->add_option("MODEL", context.model_dir, "model directory; config.json alone is enough")->check(RefuseEmptyName);
  command->add_option("--batch", options->batch, "also the weight bytes of a step at this batch size")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--ranks", options->ranks, "also the bytes each of so many ranks maps")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->callback([&context, options] {
    const Summary summary = Summarize(context.model_dir, *options);
    if (context.json) {
      Print(ToJson(context.model_dir, summary, *options).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    } else {
      PrintText(context.model_dir, summary, *options);
    }
  });
}

}  // namespace tessera
