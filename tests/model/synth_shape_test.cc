#include "model/synth_shape.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "engram/ngram.h"
#include "model/config.h"
#include "support/checkpoint_copy.h"
#include "support/tensors.h"

namespace tessera {
namespace {

using testing::MessageOf;
using testing::SourcePath;

ModelConfig ConfigOf(const SynthShape& shape) { return ParseModelConfig(SynthConfigJson(shape), shape.like); }

TEST(SynthShapeTest, UnchangedShapesAreTheReleasedConfigs) {
  for (const auto& [like, folder] : {std::pair{"v4-flash", "v4_flash"}, {"v4-pro", "v4_pro"}, {"v4.1-flash", "v41_flash"}}) {
    const std::string path = SourcePath(std::string("tests/golden/configs/") + folder + "/config.json");
    // Compared as sets of keys: only the order may differ.
    EXPECT_EQ(nlohmann::json::parse(SynthConfigJson({.like = like}).dump()), nlohmann::json::parse(ReadJsonFile(path).dump())) << like;
  }
}

TEST(SynthShapeTest, EveryNumberOfLayersOfV4IsTheBeginningOfTheModel) {
  for (const char* like : {"v4-flash", "v4-pro", "tiny-v4"}) {
    const ModelConfig whole = ConfigOf({.like = like});
    for (int64_t layers = 1; layers < whole.num_hidden_layers; ++layers) {
      const ModelConfig cut = ConfigOf({.like = like, .layers = layers});
      EXPECT_EQ(cut.num_hidden_layers, layers);
      EXPECT_TRUE(std::equal(cut.compress_ratios.begin(), cut.compress_ratios.end(), whole.compress_ratios.begin())) << like << layers;
      EXPECT_EQ(cut.num_hash_layers, std::min<int64_t>(layers, whole.num_hash_layers));
      EXPECT_EQ(cut.num_nextn_predict_layers, 0) << "drafts belong to the whole model";
    }
  }
}

TEST(SynthShapeTest, V41KeepsTheKindsOfLayersAtAnyEvenNumber) {
  for (const int layers : {8, 10, 12, 38, 48}) {
    const ModelConfig config = ConfigOf({.like = "v4.1-flash", .layers = layers, .experts = 8, .engram_rows = 5000});
    const int half = layers / 2;
    for (int layer_idx = 0; layer_idx < layers; ++layer_idx)
      EXPECT_EQ(config.compress_ratios[static_cast<size_t>(layer_idx)], layer_idx < 2 ? 0 : layer_idx < half ? 2 : 1) << layer_idx;
    EXPECT_EQ(config.kv_source_layer_ids, (std::vector<int>{2, half}));
    EXPECT_EQ(config.index_source_layer_ids, (std::vector<int>{2, half, layers - 2}));
    EXPECT_EQ(config.candidate_source_layer_id, half);
    EXPECT_EQ(config.engram_layer_ids, (std::vector<int>{1, half - 1}));
  }
}

TEST(SynthShapeTest, EngramTablesHaveTheRowsOfTheirPrimes) {
  // 24 columns a table and 208 rows a column: the primes from 208 on are 211, 223, 227, ...
  const ModelConfig config = ConfigOf({.like = "v4.1-flash", .layers = 8, .experts = 8, .engram_rows = 5000});
  EXPECT_EQ(config.engram_vocab_size, 5000 / 24);
  EngramHashConfig hash;
  hash.layer_ids = {1, 3};
  hash.max_ngram_size = 4;
  hash.n_heads = 8;
  hash.engram_vocab_size = 208;
  hash.compressed_vocab_size = config.engram_compressed_vocab_size;
  const std::vector<EngramLayerHash> hashes = EngramHashes(hash);
  EXPECT_EQ(hashes[0].primes[0], 211);
  EXPECT_EQ(config.engram_num_embeddings, (std::vector<int64_t>{hashes[0].table_rows, hashes[1].table_rows}));
}

TEST(SynthShapeTest, SizesThatWereAskedForStandInTheConfig) {
  const ModelConfig config = ConfigOf({.like = "v4-flash", .experts = 12, .hidden = 1280, .vocab = 4096});
  EXPECT_EQ(config.n_routed_experts, 12);
  EXPECT_EQ(config.hidden_size, 1280);
  EXPECT_EQ(config.vocab_size, 4096);
  EXPECT_EQ(config.num_nextn_predict_layers, 1);
  EXPECT_EQ(ParseModelConfig(SynthConfigJson({.like = "tiny-v4.1"}, 321), "x").engram_compressed_vocab_size, 321);
  EXPECT_EQ(ConfigOf({.like = "v4.1-flash", .experts = 64}).dspark_n_routed_experts, 64) << "no more than the layers have";
}

TEST(SynthShapeTest, RefusesWhatNoModelCanHaveNamingTheOption) {
  const auto refusal = [](const SynthShape& shape) { return MessageOf<Error>([&] { SynthConfigJson(shape); }); };
  EXPECT_NE(refusal({.like = "v5"}).find("--like v5: one of v4-flash, v4-pro, v4.1-flash, tiny-v4, tiny-v4.1"), std::string::npos);
  EXPECT_NE(refusal({.like = "v4-flash", .layers = 44}).find("--layers 44: v4-flash has layers 1 to 43"), std::string::npos);
  EXPECT_NE(refusal({.like = "v4-flash", .layers = 0}).find("--layers 0"), std::string::npos);
  for (const int64_t layers : {6, 7, 9, 41})
    EXPECT_NE(refusal({.like = "v4.1-flash", .layers = layers}).find("an even number from 8 up"), std::string::npos) << layers;
  EXPECT_NE(refusal({.like = "v4.1-flash", .layers = 2000}).find("--layers 2000: at most 1024"), std::string::npos);
  EXPECT_NE(refusal({.like = "v4-flash", .experts = 5}).find("--experts 5: v4-flash takes 6"), std::string::npos);
  EXPECT_NE(refusal({.like = "v4-flash", .experts = 4097}).find("--experts 4097"), std::string::npos);
  EXPECT_NE(refusal({.like = "v4-flash", .experts = 4096}).find("experts in all"), std::string::npos) << "43 layers of them";
  EXPECT_NE(refusal({.like = "v4-flash", .hidden = 4000}).find("--hidden 4000: a multiple of 128"), std::string::npos);
  EXPECT_NE(refusal({.like = "v4-flash", .hidden = 1 << 20}).find("hidden_size"), std::string::npos);
  EXPECT_NE(refusal({.like = "v4-flash", .vocab = 2}).find("--vocab 2"), std::string::npos);
  EXPECT_NE(refusal({.like = "v4-flash", .engram_rows = 5000}).find("v4-flash has no Engram tables"), std::string::npos);
  EXPECT_NE(refusal({.like = "v4.1-flash", .engram_rows = 47}).find("--engram-rows 47: at least 48"), std::string::npos);
}

}  // namespace
}  // namespace tessera
