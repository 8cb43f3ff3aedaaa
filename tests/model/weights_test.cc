#include "model/weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/check.h"
#include "support/checkpoint_copy.h"
#include "support/tensors.h"

namespace tessera {
namespace {

using testing::CheckpointCopy;
using testing::MessageOf;
using testing::SourcePath;
using testing::Tensor;

// A golden model as the test's own reader sees it, beside the product's claim.
struct Model {
  explicit Model(const std::string& relative) : Model(SourcePath(relative), ReadAll(relative)) {}
  Model(const std::string& directory, std::map<std::string, Tensor> tensors)
      : config(ReadModelConfig(directory)), checkpoint(Checkpoint::Open(directory)), tensors(std::move(tensors)) {}

  static std::map<std::string, Tensor> ReadAll(const std::string& relative) {
    std::map<std::string, Tensor> all;
    for (const char* shard : {CheckpointCopy::kFirstShard, CheckpointCopy::kSecondShard})
      all.merge(testing::ReadTensors(relative + "/" + shard));
    return all;
  }
  ModelWeights Claim(int rank = 0, int ranks = 1) const { return ClaimWeights(config, checkpoint, {rank, ranks}); }

  ModelConfig config;
  Checkpoint checkpoint;
  std::map<std::string, Tensor> tensors;
};

// Value of one element through the view, by the definition in core/quant_view.h.
float ValueAt(const QuantView& view, int64_t row, int64_t col) {
  const uint8_t* codes = view.Row(row);
  float value = 0;
  switch (view.format) {
    case Format::kBF16: {
      uint16_t bits;
      std::memcpy(&bits, codes + col * 2, 2);
      return ToFloat(bf16{bits});
    }
    case Format::kF32:
      std::memcpy(&value, codes + col * 4, 4);
      return value;
    case Format::kE4M3:
      value = E4m3ToFloat(codes[col]);
      break;
    case Format::kE2M1:
      value = E2m1ToFloat(col % 2 == 0 ? codes[col / 2] & 15 : codes[col / 2] >> 4);
      break;
  }
  return value * E8m0ToFloat(view.ScaleRow(row)[col / view.block_cols]);
}

// The same element straight from the file's bytes, by the rules of spec section 2.
float StoredValue(const Model& model, const std::string& name, int64_t row, int64_t col) {
  const Tensor& weight = model.tensors.at(name + ".weight");
  const size_t stored_cols = static_cast<size_t>(weight.shape[1]);
  const auto byte_at = [](const Tensor& tensor, size_t i) { return static_cast<uint8_t>(tensor.bytes.at(i)); };
  const size_t r = static_cast<size_t>(row), c = static_cast<size_t>(col);
  if (weight.dtype == "BF16") return ToFloat(bf16{weight.As<uint16_t>().at(r * stored_cols + c)});
  const Tensor& scale = model.tensors.at(name + ".scale");
  const size_t scale_cols = static_cast<size_t>(scale.shape[1]);
  if (weight.dtype == "I8") {
    const uint8_t pair = byte_at(weight, r * stored_cols + c / 2);
    return E2m1ToFloat(c % 2 == 0 ? pair & 15 : pair >> 4) * E8m0ToFloat(byte_at(scale, r * scale_cols + c / 32));
  }
  const bool is_table = name.ends_with("engram.embed");
  const size_t block_rows = is_table ? 1 : static_cast<size_t>(model.config.weight_block_rows);
  const size_t block_cols = is_table ? 32 : static_cast<size_t>(model.config.weight_block_cols);
  return E4m3ToFloat(byte_at(weight, r * stored_cols + c)) * E8m0ToFloat(byte_at(scale, r / block_rows * scale_cols + c / block_cols));
}

// Views of all ranks, one after the other, must be the rows of the stored matrix, each exactly once.
void ExpectRows(const Model& model, const std::string& name, const std::vector<QuantView>& shards) {
  const Tensor& weight = model.tensors.at(name + ".weight");
  const int64_t cols = weight.shape[1] * (weight.dtype == "I8" ? 2 : 1);
  int64_t first_row = 0;
  for (const QuantView& shard : shards) {
    ASSERT_EQ(shard.cols, cols) << name;
    for (int64_t row = 0; row < shard.rows; ++row) {
      for (int64_t col = 0; col < cols; col += 7) {  // 7 is coprime to every block
        ASSERT_EQ(ValueAt(shard, row, col), StoredValue(model, name, first_row + row, col)) << name << " " << row << " " << col;
      }
    }
    first_row += shard.rows;
  }
  EXPECT_EQ(first_row, weight.shape[0]) << name;
}

class ClaimTest : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(ClaimTest, ShardsAreTheRowsOfTheFile) {
  const auto [relative, ranks] = GetParam();
  const Model model(relative);
  std::vector<ModelWeights> claims;
  for (int rank = 0; rank < ranks; ++rank) claims.push_back(model.Claim(rank, ranks));
  const auto expect = [&](const std::string& name, const std::function<QuantView(const ModelWeights&)>& pick) {
    std::vector<QuantView> shards;
    for (const ModelWeights& weights : claims) shards.push_back(pick(weights));
    ExpectRows(model, name, shards);
  };
  expect("head", [](const ModelWeights& weights) { return weights.head; });
  for (size_t i = 0; i < claims[0].layers.size(); ++i) {
    const std::string prefix = fmt::format("layers.{}.", i);
    const auto expect_layer = [&](const std::string& name, const std::function<QuantView(const LayerWeights&)>& pick) {
      if (model.tensors.contains(prefix + name + ".weight")) {
        expect(prefix + name, [&](const ModelWeights& weights) { return pick(weights.layers[i]); });
      } else {
        EXPECT_EQ(pick(claims[0].layers[i]).payload, nullptr) << prefix << name;
      }
    };
    expect_layer("attn.wq_a", [](const LayerWeights& layer) { return layer.wq_a; });
    expect_layer("attn.wq_b", [](const LayerWeights& layer) { return layer.wq_b; });
    expect_layer("attn.wkv", [](const LayerWeights& layer) { return layer.wkv; });
    expect_layer("attn.wo_a", [](const LayerWeights& layer) { return layer.wo_a; });
    expect_layer("attn.wo_b", [](const LayerWeights& layer) { return layer.wo_b; });
    expect_layer("attn.compressor.wkv", [](const LayerWeights& layer) { return layer.compressor.wkv; });
    expect_layer("attn.compressor.wgate", [](const LayerWeights& layer) { return layer.compressor.wgate; });
    expect_layer("attn.indexer.compressor.wkv", [](const LayerWeights& layer) { return layer.index_compressor.wkv; });
    expect_layer("attn.indexer.compressor.wgate", [](const LayerWeights& layer) { return layer.index_compressor.wgate; });
    expect_layer("attn.indexer.wq_b", [](const LayerWeights& layer) { return layer.index_wq_b; });
    expect_layer("attn.indexer.weights_proj", [](const LayerWeights& layer) { return layer.index_weights_proj; });
    expect_layer("ffn.gate", [](const LayerWeights& layer) { return layer.gate; });
    for (const size_t e : {size_t{0}, claims[0].layers[i].experts.size() - 1}) {
      expect_layer(fmt::format("ffn.experts.{}.w1", e), [e](const LayerWeights& layer) { return layer.experts[e].w1; });
      expect_layer(fmt::format("ffn.experts.{}.w2", e), [e](const LayerWeights& layer) { return layer.experts[e].w2; });
      expect_layer(fmt::format("ffn.experts.{}.w3", e), [e](const LayerWeights& layer) { return layer.experts[e].w3; });
    }
    expect_layer("ffn.shared_experts.w1", [](const LayerWeights& layer) { return layer.shared_expert.w1; });
    expect_layer("ffn.shared_experts.w2", [](const LayerWeights& layer) { return layer.shared_expert.w2; });
    expect_layer("ffn.shared_experts.w3", [](const LayerWeights& layer) { return layer.shared_expert.w3; });
    expect_layer("engram.wkv", [](const LayerWeights& layer) { return layer.engram_wkv; });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ClaimTest,
                         ::testing::Combine(::testing::Values("tests/golden/v4_tiny", "tests/golden/v41_tiny"),
                                            ::testing::Values(1, 2, 3)));

TEST(ClaimWeightsTest, WholeTensorsAreTheSameForEveryRank) {
  const Model model("tests/golden/v41_tiny");
  for (int rank = 0; rank < 3; ++rank) {
    const ModelWeights weights = model.Claim(rank, 3);
    ExpectRows(model, "embed", {weights.embed});
    ExpectRows(model, "layers.1.engram.embed", {weights.layers[1].engram_table});
    ExpectRows(model, "layers.2.attn.indexer.wk", {weights.layers[2].index_wk});
    EXPECT_EQ(weights.layers[1].engram_q_weight.rows, 4);
    EXPECT_EQ(weights.layers[1].engram_q_weight.format, Format::kBF16);
  }
}

TEST(ClaimWeightsTest, OutputGroupsStayWithTheirHeads) {
  const Model model("tests/golden/v41_tiny");  // 4 heads of 128 in 2 groups
  const ModelWeights first = model.Claim(0, 2), third_of_three = model.Claim(0, 3);
  EXPECT_EQ(first.layers[0].wq_b.rows, 256);
  EXPECT_EQ(first.layers[0].wo_a.rows, 32);
  EXPECT_EQ(third_of_three.layers[0].wq_b.rows, 0);  // two groups for three ranks: one goes without
  EXPECT_EQ(third_of_three.layers[0].wo_a.rows, 0);
}

// v4_tiny has tensors of an odd number of bytes before F32 ones, so that the file aligns some vectors and not others.
TEST(ClaimWeightsTest, VectorsAreAlignedAndEqualToTheFile) {
  const Model model("tests/golden/v4_tiny");
  const ModelWeights weights = model.Claim();
  EXPECT_FALSE(weights.aligned_copies.empty());
  const auto expect_f32 = [&](const std::string& name, const float* values) {
    const std::vector<float> stored = model.tensors.at(name).As<float>();
    ASSERT_EQ(reinterpret_cast<uintptr_t>(values) % alignof(float), 0u) << name;
    EXPECT_EQ(std::memcmp(values, stored.data(), stored.size() * 4), 0) << name;
  };
  const auto expect_bf16 = [&](const std::string& name, const bf16* values) {
    const std::vector<uint16_t> stored = model.tensors.at(name).As<uint16_t>();
    ASSERT_EQ(reinterpret_cast<uintptr_t>(values) % alignof(bf16), 0u) << name;
    EXPECT_EQ(std::memcmp(values, stored.data(), stored.size() * 2), 0) << name;
  };
  expect_bf16("norm.weight", weights.norm);
  expect_f32("hc_head_base", weights.hc_head.base);
  expect_f32("hc_head_scale", weights.hc_head.scale);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    const std::string prefix = fmt::format("layers.{}.", i);
    expect_f32(prefix + "hc_attn_base", layer.hc_attn.base);
    expect_f32(prefix + "hc_ffn_scale", layer.hc_ffn.scale);
    expect_f32(prefix + "attn.attn_sink", layer.attn_sink);
    expect_bf16(prefix + "attn_norm.weight", layer.attn_norm);
    expect_bf16(prefix + "ffn_norm.weight", layer.ffn_norm);
    expect_bf16(prefix + "attn.q_norm.weight", layer.q_norm);
    expect_bf16(prefix + "attn.kv_norm.weight", layer.kv_norm);
    if (layer.compressor.ape != nullptr) expect_f32(prefix + "attn.compressor.ape", layer.compressor.ape);
    if (layer.index_compressor.norm != nullptr) expect_bf16(prefix + "attn.indexer.compressor.norm.weight", layer.index_compressor.norm);
    EXPECT_EQ(layer.tid2eid != nullptr, i < 2);
    EXPECT_EQ(layer.gate_bias != nullptr, i >= 2);
    if (layer.gate_bias != nullptr) expect_f32(prefix + "ffn.gate.bias", layer.gate_bias);
  }
}

TEST(ClaimWeightsTest, OwnershipOfLayersFollowsTheConfig) {
  const ModelWeights weights = Model("tests/golden/v41_tiny").Claim();
  EXPECT_EQ(weights.layers[5].compressor.wgate.rows, 0);  // ratio 1: no gate
  EXPECT_GT(weights.layers[5].compressor.wkv.rows, 0);
  EXPECT_NE(weights.layers[7].index_wq_b.payload, nullptr);  // index source without KV of its own
  EXPECT_EQ(weights.layers[7].compressor.norm, nullptr);
  EXPECT_EQ(weights.layers[3].index_wq_b.payload, nullptr);
  EXPECT_EQ(weights.hc_head.base, nullptr);
}

// The -Base repositories: experts in E4M3 with the block of the dense weights. v41_tiny's experts are rewritten that way, all codes zero.
TEST(ClaimWeightsTest, ExpertsMayBeE4m3) {
  CheckpointCopy copy("tests/golden/v41_tiny");
  for (const char* shard : {CheckpointCopy::kFirstShard, CheckpointCopy::kSecondShard}) {
    Json header = Json::object();
    size_t offset = 0;
    for (auto [name, tensor] : testing::ReadTensors(std::string("tests/golden/v41_tiny/") + shard)) {
      if (name.find(".experts.") != std::string::npos) {
        const bool is_weight = name.ends_with(".weight");
        if (is_weight)
          tensor = {"F8_E4M3", {tensor.shape[0], tensor.shape[1] * 2}, ""};
        else
          tensor.shape = {(tensor.shape[0] + 31) / 32, tensor.shape[1]};
      }
      size_t bytes = tensor.dtype == "F32" ? 4 : tensor.dtype == "BF16" ? 2 : 1;
      for (const int64_t dim : tensor.shape) bytes *= static_cast<size_t>(dim);
      header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
      offset += bytes;
    }
    copy.Write(shard, CheckpointCopy::WithHeader(header.dump(), std::string(offset, '\0')));
  }
  const Model model(copy.path(), {});
  EXPECT_EQ(StorageOfExperts(model.checkpoint), ExpertStorage::kE4M3);
  EXPECT_TRUE(VerifyCheckpoint(model.config, model.checkpoint, true).empty());
  const ModelWeights weights = model.Claim();
  const QuantView& w1 = weights.layers[3].experts[7].w1;
  EXPECT_EQ(w1.format, Format::kE4M3);
  EXPECT_EQ(w1.cols, 128);
  EXPECT_EQ(w1.block_rows, 32);
  EXPECT_EQ(w1.block_cols, 32);
}

TEST(ClaimWeightsTest, ThrowsTheFirstProblem) {
  CheckpointCopy copy("tests/golden/v41_tiny");
  copy.EditJson(CheckpointCopy::kIndex, [](Json& index) { index["weight_map"].erase("norm.weight"); });
  copy.EditHeader(CheckpointCopy::kFirstShard, [](Json& header) {
    header["norm.scale"] = header["norm.weight"];
    header.erase("norm.weight");
  });
  const std::string message = MessageOf<Error>([&] { Model(copy.path(), {}).Claim(); });
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "norm.scale: not a tensor of this model (and 1 more problems", message);
}

}  // namespace
}  // namespace tessera
