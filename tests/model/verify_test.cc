#include <gtest/gtest.h>

#include "core/check.h"
#include "model/weights.h"
#include "support/checkpoint_copy.h"
#include "support/tensors.h"

namespace tessera {
namespace {

using testing::CheckpointCopy;
using testing::MessageOf;
using testing::SourcePath;

std::vector<CheckpointProblem> Verify(const std::string& directory, bool deep) {
  return VerifyCheckpoint(ReadModelConfig(directory), Checkpoint::Open(directory), deep);
}

TEST(VerifyTest, TheGoldenModelsAreSound) {
  for (const char* relative : {"tests/golden/v41_tiny", "tests/golden/v4_tiny", "models/tiny"}) {
    EXPECT_TRUE(Verify(SourcePath(relative), true).empty()) << relative;
    EXPECT_NO_THROW(RefuseNanScales(Checkpoint::Open(SourcePath(relative))));
  }
}

class BrokenTest : public ::testing::Test {
 protected:
  // Gives a tensor of the first shard another dtype and shape of as many bytes, or another name.
  void Redeclare(const std::string& tensor, const char* dtype, const std::vector<int64_t>& shape) {
    copy_.EditHeader(CheckpointCopy::kFirstShard, [&](Json& header) {
      header.at(tensor)["dtype"] = dtype;
      header.at(tensor)["shape"] = shape;
    });
  }
  void Rename(const std::string& from, const std::string& to) {
    copy_.Remove(CheckpointCopy::kIndex);
    copy_.EditHeader(CheckpointCopy::kFirstShard, [&](Json& header) {
      header[to] = header.at(from);
      header.erase(from);
    });
  }
  std::string OnlyProblem(bool deep = false) {
    const std::vector<CheckpointProblem> problems = Verify(copy_.path(), deep);
    EXPECT_EQ(problems.size(), 1u);
    if (problems.empty()) return "";
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, problems[0].tensor, problems[0].message);
    EXPECT_EQ(problems[0].message.find('\n'), std::string::npos);
    return problems[0].message;
  }
  std::string FirstShard() { return copy_.File(CheckpointCopy::kFirstShard); }

  CheckpointCopy copy_{"tests/golden/v41_tiny"};
};

TEST_F(BrokenTest, WrongShape) {
  Redeclare("embed.weight", "BF16", {128, 352});
  EXPECT_EQ(OnlyProblem(), FirstShard() + ": embed.weight: shape [128, 352], expected [352, 128]");
}

TEST_F(BrokenTest, WrongScaleShape) {
  Redeclare("layers.0.attn.wq_a.scale", "F8_E8M0", {4, 2});
  EXPECT_EQ(OnlyProblem(), FirstShard() + ": layers.0.attn.wq_a.scale: shape [4, 2], expected [2, 4]");
}

// The block of the config does not fit the scales: an error, where a reader that trusts the file would rescale everything silently.
TEST_F(BrokenTest, WrongBlockInTheConfig) {
  copy_.EditJson("config.json", [](Json& config) { config["quantization_config"]["weight_block_size"] = {128, 128}; });
  const std::vector<CheckpointProblem> problems = Verify(copy_.path(), false);
  EXPECT_GT(problems.size(), 50u);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, ".scale: shape", problems[0].message);
}

TEST_F(BrokenTest, WrongDtype) {
  Redeclare("embed.weight", "F32", {352, 64});
  EXPECT_EQ(Verify(copy_.path(), false).size(), 2u);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "embed.weight: dtype F32, expected BF16", Verify(copy_.path(), false)[0].message);
}

TEST_F(BrokenTest, MissingAndExtraTensorsAreBothListed) {
  Rename("layers.0.attn.wkv.weight", "layers.0.attn.wkw.weight");
  const std::vector<CheckpointProblem> problems = Verify(copy_.path(), false);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].message, "layers.0.attn.wkv.weight: missing; expected F8_E4M3 [128, 128]");
  EXPECT_EQ(problems[1].message, FirstShard() + ": layers.0.attn.wkw.weight: not a tensor of this model");
}

TEST_F(BrokenTest, ScaleBytes255AreFoundWithoutDeep) {
  copy_.SetByte(CheckpointCopy::kFirstShard, "layers.0.attn.wq_a.scale", 6, 255);
  EXPECT_EQ(OnlyProblem(), FirstShard() + ": layers.0.attn.wq_a.scale: scale byte 255 (NaN) at row 1, column 2");
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "wq_a.scale: scale byte 255 (NaN) at row 1, column 2",
                      MessageOf<Error>([&] { RefuseNanScales(Checkpoint::Open(copy_.path())); }));
}

TEST_F(BrokenTest, EngramScalesAreLeftToTheGather) {
  copy_.SetByte(CheckpointCopy::kFirstShard, "layers.1.engram.embed.scale", 600, 255);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "layers.1.engram.embed.scale: scale byte 255 (NaN) at row 600, column 0", OnlyProblem());
  EXPECT_NO_THROW(RefuseNanScales(Checkpoint::Open(copy_.path())));
}

TEST_F(BrokenTest, OtherScaleBytesAreValid) {
  for (const uint8_t byte : {0, 134, 254}) copy_.SetByte(CheckpointCopy::kFirstShard, "layers.0.attn.wq_a.scale", byte % 8, byte);
  EXPECT_TRUE(Verify(copy_.path(), true).empty());
}

TEST_F(BrokenTest, ScalesMayBeStoredAsU8) {
  Redeclare("layers.0.attn.wq_a.scale", "U8", {2, 4});
  EXPECT_TRUE(Verify(copy_.path(), true).empty());
  copy_.SetByte(CheckpointCopy::kFirstShard, "layers.0.attn.wq_a.scale", 0, 255);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "scale byte 255", OnlyProblem());
}

TEST_F(BrokenTest, NanCodesAreFoundWithDeep) {
  copy_.SetByte(CheckpointCopy::kFirstShard, "layers.0.attn.wq_a.weight", 129, 0x7f);
  EXPECT_TRUE(Verify(copy_.path(), false).empty());
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "layers.0.attn.wq_a.weight: NaN or infinity (F8_E4M3) at row 1, column 1", OnlyProblem(true));
}

TEST_F(BrokenTest, NanInBf16AndF32IsFoundWithDeep) {
  copy_.SetByte(CheckpointCopy::kFirstShard, "norm.weight", 6, 0xc0);
  copy_.SetByte(CheckpointCopy::kFirstShard, "norm.weight", 7, 0x7f);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "norm.weight: NaN or infinity (BF16) at position 3", OnlyProblem(true));
  copy_.SetByte(CheckpointCopy::kFirstShard, "norm.weight", 7, 0x3f);
  copy_.SetByte(CheckpointCopy::kFirstShard, "layers.0.hc_attn_base", 10, 0x80);
  copy_.SetByte(CheckpointCopy::kFirstShard, "layers.0.hc_attn_base", 11, 0xff);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "layers.0.hc_attn_base: NaN or infinity (F32) at position 2", OnlyProblem(true));
}

TEST_F(BrokenTest, DraftsAndVisionAreNoProblem) {
  copy_.EditHeader(CheckpointCopy::kFirstShard, [](Json& header) {
    for (const char* name : {"mtp.0.norm.weight", "mtp.2.anything", "vision.patch.weight", "image_newline"}) {
      header[name] = {{"dtype", "BF16"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
    }
  });
  EXPECT_TRUE(Verify(copy_.path(), false).empty());
  const Checkpoint checkpoint = Checkpoint::Open(copy_.path());
  EXPECT_NO_THROW(ClaimWeights(ReadModelConfig(copy_.path()), checkpoint, {}));
}

TEST_F(BrokenTest, BiasOfImageTokensMayBeAbsentButNotMisshapen) {
  Redeclare("layers.0.ffn.gate.bias_vl", "F32", {2, 4});
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "layers.0.ffn.gate.bias_vl: shape [2, 4], expected [8]", OnlyProblem());
  Rename("layers.0.ffn.gate.bias_vl", "vision.bias");
  EXPECT_TRUE(Verify(copy_.path(), false).empty());
}

TEST_F(BrokenTest, AWrongModelIsReportedWithinABound) {
  copy_.EditJson("config.json", [](Json& config) {
    config["text_config"]["n_routed_experts"] = 4096;
    config["text_config"]["num_experts_per_tok"] = 1;
  });
  const std::vector<CheckpointProblem> problems = Verify(copy_.path(), false);
  ASSERT_EQ(problems.size(), kProblemsMax + 1);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "more problems were left out", problems.back().message);
}

TEST_F(BrokenTest, EveryBrokenShardIsListed) {
  EXPECT_TRUE(VerifyFiles(copy_.path()).empty());
  for (const char* shard : {CheckpointCopy::kFirstShard, CheckpointCopy::kSecondShard}) {
    const std::string content = copy_.Read(shard);
    copy_.Write(shard, content.substr(0, content.size() - 1));
  }
  std::vector<CheckpointProblem> problems = VerifyFiles(copy_.path());
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "model-00001-of-00002.safetensors: ", problems[0].message);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "model-00002-of-00002.safetensors: ", problems[1].message);
  copy_.Remove(CheckpointCopy::kSecondShard);
  problems = VerifyFiles(copy_.path());
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "1 of 2 shards of the index missing", problems[1].message);
  EXPECT_EQ(VerifyFiles("/no/such/model").size(), 1u);
}

TEST(VerifyV4Test, ExpertIdsOfHashLayersAreIndices) {
  const CheckpointCopy copy("tests/golden/v4_tiny");
  copy.SetByte(CheckpointCopy::kFirstShard, "layers.0.ffn.gate.tid2eid", 8 * 5, 8);  // ids are 0 .. 7
  const std::vector<CheckpointProblem> problems = Verify(copy.path(), false);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "layers.0.ffn.gate.tid2eid: entry 5 is expert 8, there are 8", problems[0].message);
  EXPECT_THROW(ClaimWeights(ReadModelConfig(copy.path()), Checkpoint::Open(copy.path()), {}), Error);
}

}  // namespace
}  // namespace tessera
