#include "model/config.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "support/checkpoint_copy.h"
#include "support/temporary_folder.h"
#include "support/tensors.h"

namespace tessera {
namespace {

using testing::MessageOf;
using testing::SourcePath;

Json ReadConfigJson(const std::string& relative) { return ReadJsonFile(SourcePath(relative + "/config.json")); }

TEST(ConfigTest, ReadsV4Flash) {
  const ModelConfig config = ReadModelConfig(SourcePath("tests/golden/configs/v4_flash"));
  EXPECT_FALSE(config.v41());
  EXPECT_EQ(config.num_hidden_layers, 43);
  EXPECT_EQ(config.compress_ratios.size(), 43u);
  EXPECT_EQ(config.compress_ratios[2], 4);
  EXPECT_EQ(config.compress_ratios[3], 128);
  EXPECT_TRUE(config.HasIndexer(2));
  EXPECT_FALSE(config.HasIndexer(3));
  EXPECT_EQ(config.num_hash_layers, 3);
  EXPECT_EQ(config.weight_block_rows, 128);
  EXPECT_EQ(config.rms_norm_eps, 1e-6f);
  EXPECT_TRUE(config.rope_scaling.present);
  EXPECT_EQ(config.rope_scaling.factor, 16);
  EXPECT_EQ(config.eos_token_ids, std::vector<int64_t>{1});
  EXPECT_TRUE(config.engram_layer_ids.empty());
}

TEST(ConfigTest, ReadsV41Flash) {
  const ModelConfig config = ReadModelConfig(SourcePath("tests/golden/configs/v41_flash"));
  EXPECT_TRUE(config.v41());
  EXPECT_EQ(config.rms_norm_eps, 1e-20f);
  EXPECT_EQ(config.weight_block_cols, 32);
  EXPECT_EQ(config.kv_source_layer_ids, (std::vector<int>{2, 8, 14, 20}));
  EXPECT_TRUE(config.IsKvSource(20));
  EXPECT_FALSE(config.IsKvSource(24));
  EXPECT_TRUE(config.HasIndexer(24));
  EXPECT_FALSE(config.HasIndexer(25));
  EXPECT_TRUE(config.IsEngramLayer(14));
  EXPECT_EQ(config.engram_num_embeddings[1], 384016682);
  EXPECT_EQ(config.engram_columns(), 24);
  EXPECT_EQ(config.dspark_num_target_layers, 3);
}

TEST(ConfigTest, ReadsTheSmallModels) {
  EXPECT_EQ(ReadModelConfig(SourcePath("tests/golden/v4_tiny")).num_hidden_layers, 6);
  EXPECT_EQ(ReadModelConfig(SourcePath("tests/golden/v41_tiny")).num_hidden_layers, 9);
  EXPECT_EQ(ReadModelConfig(SourcePath("models/tiny")).num_hidden_layers, 7);
  EXPECT_EQ(ReadModelConfig(SourcePath("tests/golden/configs/v4_pro")).num_hidden_layers, 61);
}

// One way to make a sound config wrong, and what the error must say.
struct Broken {
  const char* path;   // JSON pointer
  const char* value;  // JSON text; empty removes the field
  const char* message;
};

void ExpectRefused(const std::string& relative, const std::vector<Broken>& cases) {
  const Json sound = ReadConfigJson(relative);
  ASSERT_NO_THROW(ParseModelConfig(sound, "c"));
  for (const Broken& broken : cases) {
    Json json = sound;
    const Json::json_pointer pointer(broken.path);
    if (*broken.value == '\0') {
      json.at(pointer.parent_pointer()).erase(pointer.back());
    } else {
      json[pointer] = Json::parse(broken.value);
    }
    const std::string message = MessageOf<Error>([&] { ParseModelConfig(json, "c"); });
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, broken.message, message) << broken.path << " = " << broken.value;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(ConfigTest, RefusesBrokenFieldsOfBothArchitectures) {
  ExpectRefused(
      "tests/golden/v4_tiny",
      {
          {"/model_type", "\"llama\"", "c: model_type: \"llama\" is not supported; supported are \"deepseek_v4\" and \"deepseek_v41\""},
          {"/model_type", "", "model_type: missing"},
          {"/model_type", "\"a\\nb\"", "\"a?b\""},
          {"/hidden_size", "", "c: hidden_size: missing"},
          {"/hidden_size", "null", "c: hidden_size: missing"},
          {"/hidden_size", "\"160\"", "hidden_size: must be an integer"},
          {"/hidden_size", "160.0", "hidden_size: must be an integer"},
          {"/hidden_size", "0", "hidden_size: 0 is outside"},
          {"/hidden_size", "-160", "hidden_size: -160 is outside"},
          {"/hidden_size", "18446744073709551615", "hidden_size: 18446744073709551615 is outside"},
          {"/hidden_size", "150", "not a multiple of 32"},
          {"/moe_intermediate_size", "48", "not a multiple of 32"},
          {"/num_hidden_layers", "1000000000", "num_hidden_layers: 1000000000 is outside"},
          {"/num_key_value_heads", "8", "num_key_value_heads: 8 is outside 1 .. 1"},
          {"/qk_rope_head_dim", "63", "odd"},
          {"/qk_rope_head_dim", "128", "leaves nothing of head_dim"},
          {"/qk_rope_head_dim", "1026", "1026 is outside"},
          {"/compress_ratios", "[0, 257, 4, 4, 4, 4]", "compress_ratios: 257 is outside"},
          {"/index_head_dim", "2048", "2048 is outside"},
          {"/o_groups", "3", "does not divide"},
          {"/num_experts_per_tok", "9", "num_experts_per_tok: 9 is outside 1 .. 8"},
          {"/n_shared_experts", "2", "n_shared_experts"},
          {"/scoring_func", "\"softmax\"", "\"softmax\" is not supported, only \"sqrtsoftplus\""},
          {"/topk_method", "\"greedy\"", "only \"noaux_tc\""},
          {"/norm_topk_prob", "false", "norm_topk_prob: only true"},
          {"/hidden_act", "\"gelu\"", "only \"silu\""},
          {"/tie_word_embeddings", "true", "tie_word_embeddings: only false"},
          {"/torch_dtype", "\"float16\"", "only \"bfloat16\""},
          {"/compress_ratios", "[0, 4]", "2 entries for 6 layers"},
          {"/compress_ratios", "", "compress_ratios: missing"},
          {"/compress_ratios", "[0, -4, 4, 4, 4, 4]", "compress_ratios: -4 is outside"},
          {"/index_head_dim", "96", "power of two"},
          {"/index_head_dim", "32", "below qk_rope_head_dim"},
          {"/num_hash_layers", "7", "num_hash_layers: 7 is outside 0 .. 6"},
          {"/rms_norm_eps", "-1", "rms_norm_eps: -1 is outside"},
          {"/rope_theta", "\"10000\"", "rope_theta: must be a number"},
          {"/rope_scaling/type", "\"linear\"", "c: rope_scaling.rope_type: \"linear\" is not supported"},
          {"/rope_scaling/factor", "", "rope_scaling.factor: missing"},
          {"/rope_scaling/beta_slow", "64", "above beta_fast"},
          {"/rope_scaling", "3", "rope_scaling: must be an object"},
          {"/quantization_config", "", "quantization_config: missing"},
          {"/quantization_config/weight_block_size", "[128, 100]", "multiple of 32"},
          {"/quantization_config/weight_block_size", "[128]", "1 entries"},
          {"/quantization_config/scale_fmt", "\"float\"", "only \"ue8m0\""},
          {"/bos_token_id", "352", "bos_token_id: 352 is outside"},
          {"/eos_token_id", "[1, 352]", "eos_token_id: 352 is outside"},
          {"/eos_token_id", "", "eos_token_id: missing"},
      });
}

TEST(ConfigTest, RefusesBrokenRelationsOfV41) {
  ExpectRefused("tests/golden/v41_tiny",
                {
                    {"/text_config", "", "c: text_config: missing"},
                    {"/text_config/hidden_size", "", "c: text_config.hidden_size: missing"},
                    {"/text_config/compress_ratios", "[0, 0, 2, 2, 2, 4, 1, 1, 1]", "layer 5: 4 is not a ratio"},
                    {"/text_config/compress_ratios", "[0, 0, 2, 2, 2, 1, 2, 1, 1]", "layer 6 has ratio 2, its KV source, layer 5, has 1"},
                    {"/text_config/compress_ratios", "[0, 2, 2, 2, 2, 1, 1, 1, 1]", "no KV source at or before it"},
                    {"/text_config/kv_source_layer_ids", "[4, 2, 5]", "must ascend"},
                    {"/text_config/kv_source_layer_ids", "[2, 4, 9]", "9 is outside"},
                    {"/text_config/kv_source_layer_ids", "[2, 3, 5]", "index_source_layer_ids: lacks layer 3"},
                    {"/text_config/kv_source_layer_ids", "", "no KV source at or before it"},
                    {"/text_config/index_source_layer_ids", "[1, 2, 4, 5, 7]", "layer 1 has compress ratio 0"},
                    {"/text_config/index_source_layer_ids", "[2, 4, 5, 5]", "must ascend"},
                    {"/text_config/candidate_source_layer_id", "6", "layer 6 is no index source"},
                    {"/text_config/candidate_source_layer_id", "4", "comes before KV source 5"},
                    {"/text_config/candidate_topk_blocks", "", "candidate_topk_blocks: missing"},
                    {"/text_config/candidate_block_size", "0", "candidate_block_size: 0 is outside"},
                    {"/text_config/num_hash_layers", "2", "no hash-routed layers"},
                    {"/text_config/engram_num_embeddings", "[660]", "1 entries for 2 layers"},
                    {"/text_config/engram_num_embeddings", "[599, 864]", "layer 1: 599 rows"},
                    {"/text_config/engram_layer_ids", "[4, 1]", "must ascend"},
                    {"/text_config/engram_layer_ids", "[1, 9]", "9 is outside"},
                    {"/text_config/engram_head_dim", "48", "not a multiple of 32"},
                    {"/text_config/engram_max_ngram_size", "", "engram_max_ngram_size: missing"},
                    {"/text_config/engram_compressed_vocab_size", "353", "engram_compressed_vocab_size: 353 is outside"},
                    {"/text_config/num_nextn_predict_layers", "1", "dspark_n_routed_experts: missing"},
                });
}

TEST(ConfigTest, AcceptsWhatMayVary) {
  Json json = ReadConfigJson("tests/golden/v41_tiny");
  Json& text = json["text_config"];
  text["eos_token_id"] = {1, 3};
  for (const char* field : {"engram_max_ngram_size", "engram_vocab_size", "engram_n_heads", "engram_head_dim", "engram_layer_ids",
                            "engram_num_embeddings", "engram_pad_token_id", "engram_compressed_vocab_size", "rope_scaling"}) {
    text.erase(field);
  }
  text["candidate_source_layer_id"] = nullptr;
  const ModelConfig config = ParseModelConfig(json, "c");
  EXPECT_EQ(config.eos_token_ids, (std::vector<int64_t>{1, 3}));
  EXPECT_TRUE(config.engram_layer_ids.empty());
  EXPECT_EQ(config.candidate_source_layer_id, -1);
  EXPECT_FALSE(config.rope_scaling.present);
}

TEST(ConfigTest, BoundsTheExpertsOfATokenByWhatTheRouterHolds) {
  Json json = ReadConfigJson("tests/golden/v4_tiny");
  json["n_routed_experts"] = 100;
  json["num_experts_per_tok"] = 64;
  EXPECT_EQ(ParseModelConfig(json, "c").num_experts_per_tok, 64);
  json["num_experts_per_tok"] = 65;
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "65 is outside 1 .. 64", MessageOf<Error>([&] { ParseModelConfig(json, "c"); }));
}

TEST(ConfigTest, RefusesASizeThatOnlyTheProductMakesAbsurd) {
  Json json = ReadConfigJson("tests/golden/v4_tiny");
  json["num_hidden_layers"] = 1000;
  json["compress_ratios"] = std::vector<int>(1000, 0);
  json["n_routed_experts"] = 4000;
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "4000 experts in 1000 layers", MessageOf<Error>([&] { ParseModelConfig(json, "c"); }));
}

TEST(ConfigTest, NamesTheDirectoryOrFile) {
  EXPECT_EQ(MessageOf<Error>([] { ReadModelConfig("/no/such/model"); }), "/no/such/model: no such directory");
  const testing::TemporaryFolder empty;
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, empty.path() + "/config.json" + ": cannot open",
                      MessageOf<Error>([&] { ReadModelConfig(empty.path()); }));
  for (const char* text : {"", "[]", "{", "{\"model_type\": 1e999}", "{\"model_type\": 3}"}) {
    empty.Write("config.json", text);
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, empty.path() + "/config.json" + ": ",
                        MessageOf<Error>([&] { ReadModelConfig(empty.path()); }))
        << text;
  }
}

}  // namespace
}  // namespace tessera
