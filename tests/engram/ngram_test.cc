#include "engram/ngram.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "core/json.h"
#include "support/tensors.h"

namespace tessera::testing {
namespace {

EngramHashConfig V41() {
  return {.layer_ids = {1, 14}, .max_ngram_size = 4, .n_heads = 8, .engram_vocab_size = 16000000, .compressed_vocab_size = 99092};
}

TEST(NgramTest, ConstantsOfEveryGoldenConfigAreEqual) {
  const Json golden = ReadJsonFile(SourcePath("tests/golden/engram_hash/hash.json"));
  ASSERT_EQ(golden["configs"].size(), 4u);
  for (const auto& [name, want] : golden["configs"].items()) {
    SCOPED_TRACE(name);
    // The file does not repeat engram_vocab_size; every number above the prime before the first one gives the same primes.
    const EngramHashConfig config = {.layer_ids = want["layers"].get<std::vector<int64_t>>(),
                                     .max_ngram_size = want["max_ngram"],
                                     .n_heads = want["heads"],
                                     .engram_vocab_size = name == "v41" ? 16000000 : want["primes"][0][0][0].get<int64_t>() - 1,
                                     .compressed_vocab_size = want["compressed_vocab"]};
    const std::vector<EngramLayerHash> layers = EngramHashes(config);
    ASSERT_EQ(layers.size(), want["layers"].size());
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      std::vector<int64_t> primes;
      for (const Json& order : want["primes"][layer])
        for (const Json& prime : order) primes.push_back(prime.get<int64_t>());
      EXPECT_EQ(layers[layer].multipliers, want["mult"][layer].get<std::vector<int64_t>>());
      EXPECT_EQ(layers[layer].primes, primes);
      EXPECT_EQ(layers[layer].offsets, want["offsets"][layer].get<std::vector<int64_t>>());
      EXPECT_EQ(layers[layer].table_rows, want["table_rows"][layer].get<int64_t>());
    }
  }
}

TEST(NgramTest, ConstantsOfV41EqualTheFormatsFile) {
  const auto golden = ReadTensors("tests/golden/formats/formats.safetensors");
  const std::vector<EngramLayerHash> layers = EngramHashes(V41());
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].multipliers, golden.at("engram.L1.multipliers").As<int64_t>());
  EXPECT_EQ(layers[0].primes, golden.at("engram.L1.primes").As<int64_t>());
  EXPECT_EQ(layers[1].multipliers, golden.at("engram.L14.multipliers").As<int64_t>());
  EXPECT_EQ(layers[1].primes, golden.at("engram.L14.primes").As<int64_t>());
  EXPECT_EQ(layers[0].table_rows, 384006168);
  EXPECT_EQ(layers[1].table_rows, 384016682);
}

// A config repeats the tables' sizes: the sums of primes must come out as those, for the small models too.
TEST(NgramTest, TableRowsEqualTheConfigsOfAllModels) {
  for (const char* path : {"tests/golden/configs/v41_flash/config.json", "tests/golden/v41_tiny/config.json", "models/tiny/config.json"}) {
    SCOPED_TRACE(path);
    const Json config = ReadJsonFile(SourcePath(path))["text_config"];
    const std::vector<EngramLayerHash> layers = EngramHashes({.layer_ids = config["engram_layer_ids"].get<std::vector<int64_t>>(),
                                                              .max_ngram_size = config["engram_max_ngram_size"],
                                                              .n_heads = config["engram_n_heads"],
                                                              .engram_vocab_size = config["engram_vocab_size"],
                                                              .compressed_vocab_size = config["engram_compressed_vocab_size"]});
    const auto rows = config["engram_num_embeddings"].get<std::vector<int64_t>>();
    ASSERT_EQ(layers.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(layers[i].table_rows, rows[i]);
  }
}

TEST(NgramTest, ProductsFitIn63Bits) {
  for (int64_t vocab : {1, 2, 64, 99092, 1 << 29}) {
    EngramHashConfig config = V41();
    config.compressed_vocab_size = vocab;
    for (const EngramLayerHash& layer : EngramHashes(config))
      for (int64_t m : layer.multipliers) {
        EXPECT_EQ(m % 2, 1);
        EXPECT_LE(static_cast<__int128>(m) * (vocab - 1), INT64_MAX);
      }
  }
}

TEST(NgramTest, NamesTheFieldThatNoModelCanHave) {
  const auto message = [](EngramHashConfig config) -> std::string {
    try {
      EngramHashes(config);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EngramHashConfig config = V41();
  config.max_ngram_size = 9;
  EXPECT_EQ(message(config), "config: engram_max_ngram_size is 9, wants 2 to 8");
  config = V41();
  config.n_heads = 0;
  EXPECT_NE(message(config).find("engram_n_heads is 0"), std::string::npos);
  config = V41();
  config.engram_vocab_size = INT64_MAX;
  EXPECT_NE(message(config).find("engram_vocab_size"), std::string::npos);
  config = V41();
  config.compressed_vocab_size = 0;
  EXPECT_NE(message(config).find("engram_compressed_vocab_size is 0"), std::string::npos);
  config = V41();
  config.layer_ids = {-1};
  EXPECT_NE(message(config).find("engram_layer_ids is -1"), std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
