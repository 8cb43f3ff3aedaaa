#include "model/synth_shape.h"

#include <algorithm>

#include "core/check.h"
#include "engram/ngram.h"
#include "model/config.h"

namespace tessera {
namespace {

// What tells the models apart; what they share stands in CommonFields.
struct Shape {
  std::string_view name;
  bool v41 = false;
  int64_t vocab = 129280, hidden = 0, layers = 0;
  int64_t heads = 64, head_dim = 512, rope_dims = 64, q_rank = 0, o_rank = 1024, o_groups = 8, window = 128;
  int64_t index_heads = 64, index_head_dim = 128, index_topk = 512;
  int64_t experts = 0, experts_per_token = 6, expert_width = 0;
  double routed_scaling = 1.5, rms_eps = 1e-6;
  int64_t drafts = 0;
  // V4
  int64_t hash_layers = 0, first_ratio = 0;  // of layers 0 and 1
  // V4.1
  int64_t candidate_blocks = 2048;
  int64_t draft_experts = 0;
  int64_t engram_vocab = 0, engram_heads = 8, engram_head_dim = 256, compressed_vocab = 0;
};

constexpr Shape kShapes[] = {
    {.name = "v4-flash", .hidden = 4096, .layers = 43, .q_rank = 1024, .experts = 256, .expert_width = 2048, .drafts = 1, .hash_layers = 3},
    {.name = "v4-pro",
     .hidden = 7168,
     .layers = 61,
     .heads = 128,
     .q_rank = 1536,
     .o_groups = 16,
     .index_topk = 1024,
     .experts = 384,
     .expert_width = 3072,
     .routed_scaling = 2.5,
     .drafts = 1,
     .hash_layers = 3,
     .first_ratio = 128},
    {.name = "v4.1-flash",
     .v41 = true,
     .hidden = 5120,
     .layers = 40,
     .q_rank = 1280,
     .index_heads = 32,
     .experts = 384,
     .expert_width = 2304,
     .rms_eps = 1e-20,
     .drafts = 3,
     .draft_experts = 128,
     .engram_vocab = 16000000,
     .compressed_vocab = 99092},
    // Small enough to be made in a moment, with every kind of layer; limits that a short text reaches.
    {.name = "tiny-v4",
     .vocab = 512,
     .hidden = 256,
     .layers = 6,
     .heads = 4,
     .head_dim = 128,
     .q_rank = 128,
     .o_rank = 64,
     .o_groups = 2,
     .window = 32,
     .index_heads = 8,
     .index_topk = 16,
     .experts = 16,
     .experts_per_token = 3,
     .expert_width = 128,
     .hash_layers = 2},
    {.name = "tiny-v4.1",
     .v41 = true,
     .vocab = 512,
     .hidden = 256,
     .layers = 8,
     .heads = 4,
     .head_dim = 128,
     .q_rank = 128,
     .o_rank = 64,
     .o_groups = 2,
     .window = 32,
     .index_heads = 8,
     .index_topk = 16,
     .experts = 16,
     .experts_per_token = 3,
     .expert_width = 128,
     .rms_eps = 1e-20,
     .candidate_blocks = 4,
     .engram_vocab = 1000,
     .engram_heads = 2,
     .engram_head_dim = 32,
     .compressed_vocab = 400},
};

constexpr int64_t kV41LayersMin = 8;
constexpr int64_t kHiddenGrain = 128;  // the largest scale block of a dense weight
constexpr int64_t kNgramSize = 4;

const Shape& ShapeOf(const SynthShape& synth) {
  for (const Shape& shape : kShapes)
    if (shape.name == synth.like) return shape;
  const std::vector<std::string_view> names = SynthShapeNames();
  Fail("--like {}: one of {} was expected", OneLine(synth.like), fmt::join(names, ", "));
}

// The shape with the sizes asked for; refuses those that no model of its kind can have.
Shape Resized(const SynthShape& synth) {
  Shape shape = ShapeOf(synth);
  const int64_t layers = synth.layers.value_or(shape.layers);
  if (shape.v41 && (layers < kV41LayersMin || layers % 2 != 0)) {
    Fail("--layers {}: {} takes an even number from {} up: half of them are encoder layers, half decoder layers", layers, shape.name,
         kV41LayersMin);
  }
  if (!shape.v41 && (layers < 1 || layers > shape.layers))
    Fail("--layers {}: {} has layers 1 to {}, and the first of them are taken", layers, shape.name, shape.layers);
  if (layers > kLayersMax) Fail("--layers {}: at most {} are supported", layers, kLayersMax);
  if (layers != shape.layers) shape.drafts = 0;
  shape.layers = layers;
  shape.hash_layers = std::min(shape.hash_layers, layers);
  shape.experts = synth.experts.value_or(shape.experts);
  if (shape.experts < shape.experts_per_token || shape.experts > kExpertsMax) {
    Fail("--experts {}: {} takes {} (the experts of a token) to {}", shape.experts, shape.name, shape.experts_per_token, kExpertsMax);
  }
  shape.draft_experts = std::min(shape.draft_experts, shape.experts);
  shape.hidden = synth.hidden.value_or(shape.hidden);
  if (shape.hidden < kHiddenGrain || shape.hidden % kHiddenGrain != 0)
    Fail("--hidden {}: a multiple of {} is needed, the block of the dense weights", shape.hidden, kHiddenGrain);
  shape.vocab = synth.vocab.value_or(shape.vocab);
  if (shape.vocab < 3) Fail("--vocab {}: at least 3 are needed: begin, end and padding", shape.vocab);
  if (!synth.engram_rows) return shape;
  const int64_t columns = (kNgramSize - 1) * shape.engram_heads;
  if (!shape.v41) Fail("--engram-rows {}: {} has no Engram tables", *synth.engram_rows, shape.name);
  if (*synth.engram_rows < 2 * columns)
    Fail("--engram-rows {}: at least {} are needed, two for each of {} columns", *synth.engram_rows, 2 * columns, columns);
  shape.engram_vocab = *synth.engram_rows / columns;
  return shape;
}

Json CommonFields(const Shape& shape) {
  return {{"vocab_size", shape.vocab},
          {"hidden_size", shape.hidden},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.heads},
          {"num_key_value_heads", 1},
          {"head_dim", shape.head_dim},
          {"qk_rope_head_dim", shape.rope_dims},
          {"q_lora_rank", shape.q_rank},
          {"o_lora_rank", shape.o_rank},
          {"o_groups", shape.o_groups},
          {"sliding_window", shape.window},
          {"index_n_heads", shape.index_heads},
          {"index_head_dim", shape.index_head_dim},
          {"index_topk", shape.index_topk},
          {"hc_mult", 4},
          {"hc_sinkhorn_iters", 20},
          {"hc_eps", 1e-6},
          {"n_routed_experts", shape.experts},
          {"num_experts_per_tok", shape.experts_per_token},
          {"n_shared_experts", 1},
          {"moe_intermediate_size", shape.expert_width},
          {"scoring_func", "sqrtsoftplus"},
          {"topk_method", "noaux_tc"},
          {"norm_topk_prob", true},
          {"routed_scaling_factor", shape.routed_scaling},
          {"swiglu_limit", 10.0},
          {"hidden_act", "silu"},
          {"initializer_range", 0.02},
          {"rope_theta", 10000},
          {"compress_rope_theta", 160000},
          {"max_position_embeddings", 1048576},
          {"tie_word_embeddings", false},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", 0},
          {"eos_token_id", 1},
          {"use_cache", true},
          {"model_type", shape.v41 ? "deepseek_v41_text" : "deepseek_v4"},
          {"rms_norm_eps", shape.rms_eps},
          {"num_nextn_predict_layers", shape.drafts},
          {"rope_scaling",
           {{shape.v41 ? "rope_type" : "type", "yarn"},
            {"factor", 16},
            {"beta_fast", 32},
            {"beta_slow", 1},
            {"original_max_position_embeddings", 65536}}}};
}

// Entries of draft stages follow those of the layers.
Json ConfigV4(const Shape& shape) {
  Json config = CommonFields(shape);
  config["architectures"] = {"DeepseekV4ForCausalLM"};
  std::vector<int64_t> ratios;
  for (int64_t layer_idx = 0; layer_idx < shape.layers; ++layer_idx)
    ratios.push_back(layer_idx < 2 ? shape.first_ratio : layer_idx % 2 == 0 ? 4 : 128);
  ratios.resize(static_cast<size_t>(shape.layers + shape.drafts), 0);
  config["compress_ratios"] = ratios;
  config["num_hash_layers"] = shape.hash_layers;
  config["expert_dtype"] = "fp4";
  config["quantization_config"] = {{"quant_method", "fp8"},
                                   {"fmt", "e4m3"},
                                   {"activation_scheme", "dynamic"},
                                   {"scale_fmt", "ue8m0"},
                                   {"weight_block_size", {128, 128}}};
  config["torch_dtype"] = "bfloat16";
  config["transformers_version"] = "4.57.1";
  return config;
}

void AddEngram(const Shape& shape, const std::vector<int64_t>& layers, Json& text) {
  EngramHashConfig hash;
  hash.layer_ids = layers;
  hash.max_ngram_size = kNgramSize;
  hash.n_heads = static_cast<int>(shape.engram_heads);
  hash.engram_vocab_size = shape.engram_vocab;
  hash.compressed_vocab_size = shape.compressed_vocab;
  std::vector<int64_t> rows;
  for (const EngramLayerHash& layer : EngramHashes(hash)) rows.push_back(layer.table_rows);
  text["engram_layer_ids"] = layers;
  text["engram_num_embeddings"] = rows;
  text["engram_max_ngram_size"] = kNgramSize;
  text["engram_vocab_size"] = shape.engram_vocab;
  text["engram_n_heads"] = shape.engram_heads;
  text["engram_head_dim"] = shape.engram_head_dim;
  text["engram_pad_token_id"] = 2;
  text["engram_compressed_vocab_size"] = shape.compressed_vocab;
}

// `whole`: the layers are as released, with their four KV sources.
Json ConfigV41(const Shape& shape, bool whole) {
  const int64_t half = shape.layers / 2;
  Json text = CommonFields(shape);
  std::vector<int64_t> ratios;
  for (int64_t layer_idx = 0; layer_idx < shape.layers; ++layer_idx) ratios.push_back(layer_idx < 2 ? 0 : layer_idx < half ? 2 : 1);
  ratios.resize(static_cast<size_t>(shape.layers + shape.drafts), 0);
  text["compress_ratios"] = ratios;
  text["kv_source_layer_ids"] = whole ? std::vector<int64_t>{2, 8, 14, 20} : std::vector<int64_t>{2, half};
  text["index_source_layer_ids"] =
      whole ? std::vector<int64_t>{2, 8, 14, 20, 24, 28, 32, 36} : std::vector<int64_t>{2, half, shape.layers - 2};
  text["candidate_source_layer_id"] = half;
  text["candidate_topk_blocks"] = shape.candidate_blocks;
  text["candidate_block_size"] = 8;
  text["pad_token_id"] = 2;
  AddEngram(shape, whole ? std::vector<int64_t>{1, 14} : std::vector<int64_t>{1, half - 1}, text);
  text["dtype"] = "bfloat16";
  if (shape.drafts > 0) {
    text["dspark_block_size"] = 5;
    text["dspark_noise_token_id"] = std::min<int64_t>(128799, shape.vocab - 1);
    text["dspark_target_layer_ids"] = {shape.layers - 3, shape.layers - 2, shape.layers - 1};
    text["dspark_markov_rank"] = 256;
    text["dspark_n_routed_experts"] = shape.draft_experts;
    text["dspark_num_experts_per_tok"] = 3;
  }
  return {{"architectures", {"DeepseekV41ForCausalLM"}},
          {"model_type", "deepseek_v41"},
          {"dtype", "bfloat16"},
          {"image_token_id", std::min<int64_t>(129264, shape.vocab - 1)},
          {"text_config", text},
          {"quantization_config",
           {{"quant_method", "fp8"},
            {"activation_scheme", "dynamic"},
            {"scale_fmt", "ue8m0"},
            {"weight_block_size", {32, 32}},
            {"expert_dtype", "fp4"}}},
          {"transformers_version", "5.0.0"}};
}

}  // namespace

std::vector<std::string_view> SynthShapeNames() {
  std::vector<std::string_view> names;
  for (const Shape& shape : kShapes) names.push_back(shape.name);
  return names;
}

int64_t SynthVocabSize(const SynthShape& shape) { return Resized(shape).vocab; }
bool SynthHasEngram(const SynthShape& shape) { return ShapeOf(shape).v41; }

Json SynthConfigJson(const SynthShape& synth, int64_t compressed_vocab_size) {
  Shape shape = Resized(synth);
  shape.compressed_vocab = compressed_vocab_size > 0 ? compressed_vocab_size : std::min(shape.compressed_vocab, shape.vocab);
  const bool whole = shape.drafts > 0;
  Json config = shape.v41 ? ConfigV41(shape, whole) : ConfigV4(shape);
  ParseModelConfig(config, synth.like);  // what no single option is to blame for
  return config;
}

}  // namespace tessera
