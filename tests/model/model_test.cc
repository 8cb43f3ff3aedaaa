#include "model/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/check.h"
#include "support/checkpoint_copy.h"
#include "support/golden_map.h"

namespace tessera {
namespace {

using testing::CheckpointCopy;
using testing::GoldenTokenMap;
using testing::MessageOf;
using testing::SourcePath;

void ExpectRefusal(const std::string& dir, const std::vector<int32_t>& token_map, const std::string& expected) {
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, expected, MessageOf<Error>([&] { Model(dir, token_map, ClaimOptions{}); }));
}

TEST(ModelTest, OpensTheGoldenV41Checkpoint) {
  const Model model(SourcePath("tests/golden/v41_tiny"), GoldenTokenMap(), ClaimOptions{});
  EXPECT_TRUE(model.config().v41());
  EXPECT_EQ(model.weights().layers.size(), 9u);
  ASSERT_NE(model.engram_store(), nullptr);
  ASSERT_EQ(model.engram_layers().size(), 2u);
  EXPECT_EQ(model.engram_layers()[0].layer_idx, 1);
  EXPECT_EQ(model.engram_layers()[1].layer_idx, 4);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(model.engram_layers()[i].hash.table_rows, model.config().engram_num_embeddings[i]);
}

TEST(ModelTest, OpensTheGoldenV4CheckpointWithoutATokenMap) {
  const Model model(SourcePath("tests/golden/v4_tiny"), {}, ClaimOptions{});
  EXPECT_FALSE(model.config().v41());
  EXPECT_EQ(model.engram_store(), nullptr);
  EXPECT_TRUE(model.engram_layers().empty());
  EXPECT_TRUE(model.token_map().empty());
}

TEST(ModelTest, GateWeightsAreTheProductsOfTheStoredOnes) {
  const Model model(SourcePath("tests/golden/v41_tiny"), GoldenTokenMap(), ClaimOptions{});
  auto tensors = testing::ReadTensors("tests/golden/v41_tiny/model-00001-of-00002.safetensors");
  tensors.merge(testing::ReadTensors("tests/golden/v41_tiny/model-00002-of-00002.safetensors"));
  const auto floats = [&](const std::string& name) {
    const testing::Tensor& tensor = tensors.at(name);
    if (tensor.dtype == "F32") return tensor.As<float>();
    std::vector<float> values;
    for (const uint16_t bits : tensor.As<uint16_t>()) values.push_back(ToFloat(bf16{bits}));
    return values;
  };
  for (const EngramLayer& layer : model.engram_layers()) {
    const std::string prefix = "layers." + std::to_string(layer.layer_idx) + ".engram.";
    const std::vector<float> q = floats(prefix + "q_weight"), k = floats(prefix + "k_weight");
    ASSERT_EQ(layer.qk_weight.size(), q.size());
    for (size_t i = 0; i < q.size(); ++i) ASSERT_EQ(layer.qk_weight[i], q[i] * k[i]) << i;
  }
}

// 9 layers of V4.1: the two tables differ from the second pair on, by base and YaRN (spec/model.md sections 4 and 14).
TEST(ModelTest, LayersWithCompressedEntriesHaveFrequenciesOfTheirOwn) {
  const Model model(SourcePath("tests/golden/v41_tiny"), GoldenTokenMap(), ClaimOptions{});
  const std::vector<float>&plain = model.rope_frequencies(false), &compressed = model.rope_frequencies(true);
  ASSERT_EQ(plain.size(), 32u);
  ASSERT_EQ(compressed.size(), 32u);
  // Printed with seven digits.
  const auto expect = [](float value, double printed) { EXPECT_NEAR(value, printed, printed * 5e-7); };
  expect(plain[0], 1);
  expect(plain[1], 7.498942e-01);
  expect(plain[2], 5.623413e-01);
  expect(plain[31], 1.333522e-04);
  expect(compressed[0], 1);
  expect(compressed[1], 6.876560e-01);
  expect(compressed[16], 2.265625e-03);
  expect(compressed[31], 5.680529e-07);
}

TEST(ModelTest, TokensBeyondTheMapCountAsPadding) {
  std::vector<int32_t> map = GoldenTokenMap();
  ASSERT_EQ(map.size(), 352u);
  const Model whole(SourcePath("tests/golden/v41_tiny"), map, ClaimOptions{});
  EXPECT_EQ(whole.token_map(), map);
  // The tokenizer may know fewer tokens than the embedding has rows, as long as its keys are all there.
  const int32_t last_key = static_cast<int32_t>(whole.config().engram_compressed_vocab_size) - 1;
  map.resize(20);
  map[19] = last_key;
  const Model some(SourcePath("tests/golden/v41_tiny"), map, ClaimOptions{});
  ASSERT_EQ(some.token_map().size(), 352u);
  for (size_t i = 0; i < 352; ++i) EXPECT_EQ(some.token_map()[i], i < 20 ? map[i] : map[2]) << i;
}

TEST(ModelTest, RefusesATokenMapOfAnotherSize) {
  const std::string dir = SourcePath("tests/golden/v41_tiny");
  std::vector<int32_t> map = GoldenTokenMap();
  ExpectRefusal(dir, {}, "/tokenizer.json: 0 compressed token ids, engram_compressed_vocab_size in config.json says 305");
  for (int32_t& id : map) id = std::min(id, 303);
  ExpectRefusal(dir, map, "304 compressed token ids");
  map[100] = 305;
  ExpectRefusal(dir, map, "306 compressed token ids");
  ExpectRefusal(dir, {304, 0}, "2 tokens, engram_pad_token_id in config.json is 2");
}

TEST(ModelTest, RefusesTablesThatThePrimesOverrun) {
  const CheckpointCopy copy("tests/golden/v41_tiny");
  // 6 columns of at least 110 fill the 660 rows; six different primes above 110 need more.
  copy.EditJson("config.json", [](Json& json) { json["text_config"]["engram_vocab_size"] = 110; });
  ExpectRefusal(copy.path(), GoldenTokenMap(), "engram_num_embeddings[0] = 660 rows, the primes from engram_vocab_size need");
}

TEST(ModelTest, RefusesAScaleThatIsNoNumber) {
  const CheckpointCopy copy("tests/golden/v4_tiny");
  copy.SetByte(CheckpointCopy::kFirstShard, "layers.0.attn.wq_a.scale", 0, 255);
  ExpectRefusal(copy.path(), {}, "layers.0.attn.wq_a.scale: scale byte 255 (NaN)");
}

}  // namespace
}  // namespace tessera
