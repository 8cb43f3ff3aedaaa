#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "attention/compressor.h"
#include "core/check.h"
#include "core/file.h"
#include "moe/router.h"

namespace tessera {
namespace {

// Upper bounds of single sizes; see kLayersMax for why there are any.
constexpr int64_t kWidthMax = int64_t{1} << 17;      // hidden, ranks of low-rank projections, expert width
constexpr int64_t kHeadWidthMax = int64_t{1} << 14;  // one head, one index head, one Engram head
constexpr int64_t kHeadsMax = 4096;
constexpr int64_t kVocabMax = int64_t{1} << 24;
constexpr int64_t kContextMax = int64_t{1} << 30;  // positions are int32 in the step metadata
constexpr int64_t kWindowMax = int64_t{1} << 20;
constexpr int64_t kSelectionMax = int64_t{1} << 20;  // every row of a step has a list of this many entries
constexpr int64_t kEngramRowsMax = int64_t{1} << 40;
constexpr int64_t kEngramVocabMax = int64_t{1} << 31;  // trial division up to its root finds the primes
constexpr int64_t kListMax = 4096;                     // entries of a list of layers

// Reads typed fields of one JSON object and words every complaint as "<file>: <field>: <reason>".
class FieldReader {
 public:
  FieldReader(const Json& object, std::string what, std::string prefix)
      : object_(object), what_(std::move(what)), prefix_(std::move(prefix)) {}

  template <class... Args>
  [[noreturn]] void Refuse(std::string_view name, fmt::format_string<Args...> format, Args&&... args) const {
    Fail("{}: {}{}: {}", what_, prefix_, name, fmt::format(format, std::forward<Args>(args)...));
  }

  // Null when the field is absent or JSON null.
  const Json* Find(std::string_view name) const {
    const auto found = object_.find(std::string(name));
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  const Json& Get(std::string_view name) const {
    const Json* value = Find(name);
    if (value == nullptr) Refuse(name, "missing");
    return *value;
  }

  int64_t Int(std::string_view name, int64_t low, int64_t high) const { return ToInt(name, Get(name), low, high); }
  int64_t IntOr(std::string_view name, int64_t fallback, int64_t low, int64_t high) const {
    const Json* value = Find(name);
    return value == nullptr ? fallback : ToInt(name, *value, low, high);
  }
  float Float(std::string_view name, double low, double high) const { return ToFloat(name, Get(name), low, high); }
  float FloatOr(std::string_view name, double fallback, double low, double high) const {
    const Json* value = Find(name);
    return value == nullptr ? static_cast<float>(fallback) : ToFloat(name, *value, low, high);
  }
  template <class Integer>
  std::vector<Integer> Ints(std::string_view name, int64_t low, int64_t high) const {
    const Json* value = Find(name);
    std::vector<Integer> numbers;
    if (value == nullptr) return numbers;
    if (!value->is_array()) Refuse(name, "must be a list of integers");
    if (value->size() > static_cast<size_t>(kListMax)) Refuse(name, "{} entries, at most {} are allowed", value->size(), kListMax);
    for (const Json& element : *value) numbers.push_back(static_cast<Integer>(ToInt(name, element, low, high)));
    return numbers;
  }
  std::optional<std::string> Text(std::string_view name) const {
    const Json* value = Find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) Refuse(name, "must be a string");
    return value->get<std::string>();
  }
  // A field that may be absent, but if present has the one value this engine implements.
  void OnlyText(std::string_view name, std::string_view expected) const {
    const std::optional<std::string> text = Text(name);
    if (text && *text != expected) Refuse(name, "\"{}\" is not supported, only \"{}\"", OneLine(*text), expected);
  }
  void OnlyFlag(std::string_view name, bool expected) const {
    const Json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_boolean() || value->get<bool>() != expected) Refuse(name, "only {} is supported", expected);
  }
  FieldReader Object(std::string_view name) const {
    const Json& value = Get(name);
    if (!value.is_object()) Refuse(name, "must be an object");
    return {value, what_, fmt::format("{}{}.", prefix_, name)};
  }

 private:
  int64_t ToInt(std::string_view name, const Json& value, int64_t low, int64_t high) const {
    if (!value.is_number_integer()) Refuse(name, "must be an integer");
    // Above int64 the parser stores unsigned; such a value is beyond every bound here.
    const bool beyond = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    if (beyond || value.get<int64_t>() < low || value.get<int64_t>() > high) {
      Refuse(name, "{} is outside {} .. {}", value.dump(), low, high);
    }
    return value.get<int64_t>();
  }
  float ToFloat(std::string_view name, const Json& value, double low, double high) const {
    if (!value.is_number()) Refuse(name, "must be a number");
    const double number = value.get<double>();
    if (!(number >= low && number <= high)) Refuse(name, "{} is outside {} .. {}", number, low, high);
    return static_cast<float>(number);
  }

  const Json& object_;
  std::string what_;
  std::string prefix_;
};

Architecture ReadArchitecture(const FieldReader& root) {
  const std::optional<std::string> type = root.Text("model_type");
  if (!type) root.Refuse("model_type", "missing; supported are \"deepseek_v4\" and \"deepseek_v41\"");
  if (*type == "deepseek_v4") return Architecture::kDeepseekV4;
  if (*type == "deepseek_v41") return Architecture::kDeepseekV41;
  root.Refuse("model_type", "\"{}\" is not supported; supported are \"deepseek_v4\" and \"deepseek_v41\"", OneLine(*type));
}

void ReadSizes(const FieldReader& fields, ModelConfig& config) {
  config.vocab_size = fields.Int("vocab_size", 1, kVocabMax);
  config.hidden_size = fields.Int("hidden_size", 1, kWidthMax);
  if (config.hidden_size % 32 != 0)
    fields.Refuse("hidden_size", "{} is not a multiple of 32, the scale block of the experts", config.hidden_size);
  config.num_hidden_layers = static_cast<int>(fields.Int("num_hidden_layers", 1, kLayersMax));
  config.num_attention_heads = static_cast<int>(fields.Int("num_attention_heads", 1, kHeadsMax));
  fields.IntOr("num_key_value_heads", 1, 1, 1);
  config.head_dim = fields.Int("head_dim", 2, kHeadWidthMax);
  config.qk_rope_head_dim = fields.Int("qk_rope_head_dim", 2, kRopeDimsMax);
  if (config.qk_rope_head_dim % 2 != 0) fields.Refuse("qk_rope_head_dim", "{} is odd; dims are rotated in pairs", config.qk_rope_head_dim);
  if (config.qk_rope_head_dim >= config.head_dim) {
    fields.Refuse("qk_rope_head_dim", "{} leaves nothing of head_dim {}", config.qk_rope_head_dim, config.head_dim);
  }
  config.q_lora_rank = fields.Int("q_lora_rank", 1, kWidthMax);
  config.o_lora_rank = fields.Int("o_lora_rank", 1, kWidthMax);
  config.o_groups = static_cast<int>(fields.Int("o_groups", 1, config.num_attention_heads));
  if (config.num_attention_heads % config.o_groups != 0) {
    fields.Refuse("o_groups", "{} does not divide num_attention_heads {}", config.o_groups, config.num_attention_heads);
  }
  config.sliding_window = fields.Int("sliding_window", 1, kWindowMax);
  config.hc_mult = static_cast<int>(fields.Int("hc_mult", 1, 8));
  config.hc_sinkhorn_iters = static_cast<int>(fields.Int("hc_sinkhorn_iters", 1, 1000));
  config.hc_eps = fields.Float("hc_eps", 0, 1);
  config.rms_norm_eps = fields.Float("rms_norm_eps", 0, 1);
  config.max_position_embeddings = fields.Int("max_position_embeddings", 1, kContextMax);
}

void ReadRope(const FieldReader& fields, ModelConfig& config) {
  config.rope_theta = fields.Float("rope_theta", 1, 1e12);
  config.compress_rope_theta = fields.Float("compress_rope_theta", 1, 1e12);
  if (fields.Find("rope_scaling") == nullptr) return;
  const FieldReader scaling = fields.Object("rope_scaling");
  const std::optional<std::string> type = scaling.Text("rope_type") ? scaling.Text("rope_type") : scaling.Text("type");
  if (!type) scaling.Refuse("rope_type", "missing");
  if (*type == "default") return;
  if (*type != "yarn") scaling.Refuse("rope_type", "\"{}\" is not supported, only \"yarn\"", OneLine(*type));
  RopeScaling& rope = config.rope_scaling;
  rope.present = true;
  rope.factor = scaling.Float("factor", 1, 1e6);
  rope.beta_fast = scaling.FloatOr("beta_fast", 32, 1e-3, 1e6);
  rope.beta_slow = scaling.FloatOr("beta_slow", 1, 1e-3, 1e6);
  if (rope.beta_slow > rope.beta_fast) scaling.Refuse("beta_slow", "{} is above beta_fast {}", rope.beta_slow, rope.beta_fast);
  rope.original_max_position_embeddings = scaling.Int("original_max_position_embeddings", 1, kContextMax);
}

void ReadExperts(const FieldReader& fields, ModelConfig& config) {
  config.n_routed_experts = static_cast<int>(fields.Int("n_routed_experts", 1, kExpertsMax));
  if (int64_t{config.n_routed_experts} * config.num_hidden_layers > kLayersTimesExpertsMax) {
    fields.Refuse("n_routed_experts", "{} experts in {} layers, at most {} experts in all are supported", config.n_routed_experts,
                  config.num_hidden_layers, kLayersTimesExpertsMax);
  }
  config.n_shared_experts = static_cast<int>(fields.Int("n_shared_experts", 1, 1));
  config.num_experts_per_tok =
      static_cast<int>(fields.Int("num_experts_per_tok", 1, std::min(config.n_routed_experts, kExpertsPerTokenMax)));
  config.moe_intermediate_size = fields.Int("moe_intermediate_size", 1, kWidthMax);
  if (config.moe_intermediate_size % 32 != 0) {
    fields.Refuse("moe_intermediate_size", "{} is not a multiple of 32, the scale block of the experts", config.moe_intermediate_size);
  }
  config.routed_scaling_factor = fields.FloatOr("routed_scaling_factor", 1, 1e-6, 1e6);
  config.swiglu_limit = fields.Float("swiglu_limit", 1e-6, 1e6);
  fields.OnlyText("scoring_func", "sqrtsoftplus");
  fields.OnlyText("topk_method", "noaux_tc");
  fields.OnlyFlag("norm_topk_prob", true);
  fields.OnlyText("hidden_act", "silu");
  fields.OnlyFlag("tie_word_embeddings", false);
  fields.OnlyFlag("attention_bias", false);
  config.num_hash_layers = static_cast<int>(fields.IntOr("num_hash_layers", 0, 0, config.num_hidden_layers));
  if (config.v41() && config.num_hash_layers != 0) fields.Refuse("num_hash_layers", "deepseek_v41 has no hash-routed layers");
}

void ReadRatios(const FieldReader& fields, ModelConfig& config) {
  fields.Get("compress_ratios");
  config.compress_ratios = fields.Ints<int>("compress_ratios", 0, kPoolSlotsMax);
  const size_t num_layers = static_cast<size_t>(config.num_hidden_layers);
  if (config.compress_ratios.size() < num_layers) {
    fields.Refuse("compress_ratios", "{} entries for {} layers", config.compress_ratios.size(), num_layers);
  }
  config.compress_ratios.resize(num_layers);  // what follows belongs to draft stages
  for (size_t layer_idx = 0; config.v41() && layer_idx < num_layers; ++layer_idx) {
    const int ratio = config.compress_ratios[layer_idx];
    if (ratio > 2) fields.Refuse("compress_ratios", "layer {}: {} is not a ratio of deepseek_v41 (0, 1, 2)", layer_idx, ratio);
  }
}

void ReadIndexer(const FieldReader& fields, ModelConfig& config) {
  config.index_n_heads = static_cast<int>(fields.Int("index_n_heads", 1, kHeadsMax));
  config.index_head_dim = fields.Int("index_head_dim", 2, kIndexHeadDimMax);
  config.index_topk = fields.Int("index_topk", 1, kSelectionMax);
  if (config.index_head_dim < config.qk_rope_head_dim) {
    fields.Refuse("index_head_dim", "{} is below qk_rope_head_dim {}", config.index_head_dim, config.qk_rope_head_dim);
  }
  if (config.index_head_dim % 2 != 0)
    fields.Refuse("index_head_dim", "{} is odd; index keys are stored two codes a byte", config.index_head_dim);
  if (!config.v41() && (config.index_head_dim & (config.index_head_dim - 1)) != 0) {
    fields.Refuse("index_head_dim", "{} is not a power of two, which the Hadamard transform needs", config.index_head_dim);
  }
}

void CheckAscendingLayers(const FieldReader& fields, std::string_view name, const std::vector<int>& layers) {
  for (size_t i = 1; i < layers.size(); ++i) {
    if (layers[i] <= layers[i - 1]) fields.Refuse(name, "{} after {}: layers must ascend", layers[i], layers[i - 1]);
  }
}

// Every compressed layer reads the entries of the latest KV source and the selection of the latest index source; a selection is only
// meaningful for the entries it was made from.
void CheckSources(const FieldReader& fields, const ModelConfig& config) {
  for (const int layer_idx : config.kv_source_layer_ids) {
    if (!config.IsIndexSource(layer_idx)) fields.Refuse("index_source_layer_ids", "lacks layer {}, a KV source", layer_idx);
  }
  for (const int layer_idx : config.index_source_layer_ids) {
    if (config.compress_ratios[static_cast<size_t>(layer_idx)] == 0) {
      fields.Refuse("index_source_layer_ids", "layer {} has compress ratio 0", layer_idx);
    }
  }
  int source = -1;
  for (int layer_idx = 0; layer_idx < config.num_hidden_layers; ++layer_idx) {
    const int ratio = config.compress_ratios[static_cast<size_t>(layer_idx)];
    if (config.IsKvSource(layer_idx)) source = layer_idx;
    if (ratio == 0) continue;
    if (source < 0)
      fields.Refuse("kv_source_layer_ids", "layer {} has compress ratio {} and no KV source at or before it", layer_idx, ratio);
    const int source_ratio = config.compress_ratios[static_cast<size_t>(source)];
    if (source_ratio != ratio) {
      fields.Refuse("compress_ratios", "layer {} has ratio {}, its KV source, layer {}, has {}", layer_idx, ratio, source, source_ratio);
    }
  }
}

void ReadCandidates(const FieldReader& fields, ModelConfig& config) {
  const int last_layer = config.num_hidden_layers - 1;
  config.candidate_source_layer_id = static_cast<int>(fields.IntOr("candidate_source_layer_id", -1, -1, last_layer));
  if (config.candidate_source_layer_id < 0) return;
  config.candidate_topk_blocks = fields.Int("candidate_topk_blocks", 1, kSelectionMax);
  config.candidate_block_size = fields.Int("candidate_block_size", 1, kWindowMax);
  if (!config.IsIndexSource(config.candidate_source_layer_id)) {
    fields.Refuse("candidate_source_layer_id", "layer {} is no index source", config.candidate_source_layer_id);
  }
  if (config.kv_source_layer_ids.back() > config.candidate_source_layer_id) {
    fields.Refuse("candidate_source_layer_id", "layer {} comes before KV source {}, whose entries its blocks do not name",
                  config.candidate_source_layer_id, config.kv_source_layer_ids.back());
  }
}

void ReadEngram(const FieldReader& fields, ModelConfig& config) {
  config.engram_layer_ids = fields.Ints<int>("engram_layer_ids", 0, config.num_hidden_layers - 1);
  config.engram_num_embeddings = fields.Ints<int64_t>("engram_num_embeddings", 1, kEngramRowsMax);
  CheckAscendingLayers(fields, "engram_layer_ids", config.engram_layer_ids);
  const size_t num_tables = config.engram_layer_ids.size();
  if (num_tables > 16) fields.Refuse("engram_layer_ids", "{} layers, at most 16 are supported", num_tables);
  if (config.engram_num_embeddings.size() != num_tables) {
    fields.Refuse("engram_num_embeddings", "{} entries for {} layers in engram_layer_ids", config.engram_num_embeddings.size(), num_tables);
  }
  if (num_tables == 0) return;
  config.engram_max_ngram_size = static_cast<int>(fields.Int("engram_max_ngram_size", 2, 16));
  config.engram_vocab_size = fields.Int("engram_vocab_size", 2, kEngramVocabMax);
  config.engram_n_heads = static_cast<int>(fields.Int("engram_n_heads", 1, 16));
  config.engram_head_dim = fields.Int("engram_head_dim", 32, kHeadWidthMax);
  if (config.engram_head_dim % 32 != 0)
    fields.Refuse("engram_head_dim", "{} is not a multiple of 32, the scale block of a row", config.engram_head_dim);
  config.engram_compressed_vocab_size = fields.Int("engram_compressed_vocab_size", 1, config.vocab_size);
  config.engram_pad_token_id = fields.Int("engram_pad_token_id", 0, config.vocab_size - 1);
  for (size_t i = 0; i < num_tables; ++i) {
    // Each column has its own prime, none below engram_vocab_size and no two equal; that the primes add up exactly is checked where they
    // are made.
    const int64_t rows_min = config.engram_columns() * config.engram_vocab_size;
    if (config.engram_num_embeddings[i] < rows_min) {
      fields.Refuse("engram_num_embeddings", "layer {}: {} rows, {} columns of at least engram_vocab_size {} need {} or more",
                    config.engram_layer_ids[i], config.engram_num_embeddings[i], config.engram_columns(), config.engram_vocab_size,
                    rows_min);
    }
  }
}

void ReadDrafts(const FieldReader& fields, ModelConfig& config) {
  config.num_nextn_predict_layers = static_cast<int>(fields.IntOr("num_nextn_predict_layers", 0, 0, 16));
  if (!config.v41() || config.num_nextn_predict_layers == 0) return;
  config.dspark_n_routed_experts = static_cast<int>(fields.Int("dspark_n_routed_experts", 1, kExpertsMax));
  config.dspark_markov_rank = fields.Int("dspark_markov_rank", 1, kWidthMax);
  fields.Get("dspark_target_layer_ids");
  const std::vector<int> targets = fields.Ints<int>("dspark_target_layer_ids", 0, config.num_hidden_layers - 1);
  if (targets.empty()) fields.Refuse("dspark_target_layer_ids", "is empty");
  config.dspark_num_target_layers = static_cast<int>(targets.size());
}

void ReadSpecialTokens(const FieldReader& fields, ModelConfig& config) {
  config.bos_token_id = fields.Int("bos_token_id", 0, config.vocab_size - 1);
  const Json& eos = fields.Get("eos_token_id");
  if (eos.is_array()) {
    config.eos_token_ids = fields.Ints<int64_t>("eos_token_id", 0, config.vocab_size - 1);
  } else {
    config.eos_token_ids = {fields.Int("eos_token_id", 0, config.vocab_size - 1)};
  }
}

void ReadQuantization(const FieldReader& root, ModelConfig& config) {
  const FieldReader fields = root.Object("quantization_config");
  fields.OnlyText("quant_method", "fp8");
  fields.OnlyText("fmt", "e4m3");
  fields.OnlyText("scale_fmt", "ue8m0");
  fields.OnlyText("activation_scheme", "dynamic");
  fields.Get("weight_block_size");
  const std::vector<int> block = fields.Ints<int>("weight_block_size", 1, 4096);
  if (block.size() != 2) fields.Refuse("weight_block_size", "{} entries, [rows, columns] are expected", block.size());
  config.weight_block_rows = block[0];
  config.weight_block_cols = block[1];
  if (config.weight_block_cols % 32 != 0)
    fields.Refuse("weight_block_size", "{} columns, a multiple of 32 is needed", config.weight_block_cols);
}

bool Contains(const std::vector<int>& layers, int layer_idx) { return std::binary_search(layers.begin(), layers.end(), layer_idx); }

}  // namespace

bool ModelConfig::IsEngramLayer(int layer_idx) const { return Contains(engram_layer_ids, layer_idx); }
bool ModelConfig::IsKvSource(int layer_idx) const { return Contains(kv_source_layer_ids, layer_idx); }
bool ModelConfig::IsIndexSource(int layer_idx) const { return Contains(index_source_layer_ids, layer_idx); }
bool ModelConfig::HasIndexer(int layer_idx) const {
  return v41() ? IsIndexSource(layer_idx) : compress_ratios[static_cast<size_t>(layer_idx)] == 4;
}

ModelConfig ParseModelConfig(const Json& json, const std::string& what) {
  if (!json.is_object()) Fail("{}: not a JSON object", what);
  const FieldReader root(json, what, "");
  ModelConfig config;
  config.architecture = ReadArchitecture(root);
  const FieldReader fields = config.v41() ? root.Object("text_config") : root;
  // The type the model was trained in; released files spell the key either way.
  root.OnlyText("dtype", "bfloat16");
  root.OnlyText("torch_dtype", "bfloat16");
  ReadSizes(fields, config);
  ReadRope(fields, config);
  ReadExperts(fields, config);
  ReadRatios(fields, config);
  ReadIndexer(fields, config);
  if (config.v41()) {
    const int last_layer = config.num_hidden_layers - 1;
    config.kv_source_layer_ids = fields.Ints<int>("kv_source_layer_ids", 0, last_layer);
    config.index_source_layer_ids = fields.Ints<int>("index_source_layer_ids", 0, last_layer);
    CheckAscendingLayers(fields, "kv_source_layer_ids", config.kv_source_layer_ids);
    CheckAscendingLayers(fields, "index_source_layer_ids", config.index_source_layer_ids);
    CheckSources(fields, config);
    ReadCandidates(fields, config);
    ReadEngram(fields, config);
    if (config.head_dim % 2 != 0) fields.Refuse("head_dim", "{} is odd; compressed entries are stored two codes a byte", config.head_dim);
  }
  ReadDrafts(fields, config);
  ReadSpecialTokens(fields, config);
  ReadQuantization(root, config);
  return config;
}

ModelConfig ReadModelConfig(const std::string& model_dir) {
  if (!FileExists(model_dir)) Fail("{}: no such directory", model_dir);
  const std::string path = model_dir + "/config.json";
  return ParseModelConfig(ReadJsonFile(path), path);
}

}  // namespace tessera
