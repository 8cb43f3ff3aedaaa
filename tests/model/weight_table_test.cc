#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <ostream>

#include "core/json.h"
#include "model/weights.h"
#include "support/tensors.h"

namespace tessera {
namespace {

using testing::ReadTensors;
using testing::SourcePath;

struct Published {
  const char* folder;
  int64_t num_tensors;
  int64_t bytes;
};

void PrintTo(const Published& published, std::ostream* stream) { *stream << published.folder; }

class InventoryTest : public ::testing::TestWithParam<Published> {
 protected:
  const std::string directory_ = SourcePath(std::string("tests/golden/configs/") + GetParam().folder);
  const ModelConfig config_ = ReadModelConfig(directory_);
  const Json inventory_ = ReadJsonFile(directory_ + "/inventory.json");
};

std::string Describe(std::string_view dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

std::string Substitute(std::string pattern, const std::string& token, int64_t number) {
  const size_t at = pattern.find(token);
  return at == std::string::npos ? pattern : pattern.replace(at + 1, 1, std::to_string(number));
}

// Every name a pattern of the inventory stands for: layers.N. over its layers, experts.E. over as many experts as the count allows.
std::vector<std::string> NamesOf(const Json& pattern) {
  const std::string name = pattern["name"];
  std::vector<std::string> names;
  const std::vector<int64_t> layers = pattern["layers"];
  if (layers.empty()) {
    names.push_back(name);
  } else {
    for (const int64_t layer_idx : layers) names.push_back(Substitute(name, ".N.", layer_idx));
  }
  if (name.find(".E.") == std::string::npos) return names;
  const int64_t num_experts = pattern["count"].get<int64_t>() / static_cast<int64_t>(names.size());
  std::vector<std::string> expanded;
  for (const std::string& layer_name : names) {
    for (int64_t expert_idx = 0; expert_idx < num_experts; ++expert_idx) expanded.push_back(Substitute(layer_name, ".E.", expert_idx));
  }
  return expanded;
}

TEST_P(InventoryTest, TableIsExactlyTheInventory) {
  std::map<std::string, std::string> expected;
  for (const Json& pattern : inventory_["patterns"]) {
    const std::vector<std::string> names = NamesOf(pattern);
    EXPECT_EQ(static_cast<int64_t>(names.size()), pattern["count"].get<int64_t>()) << pattern["name"];
    for (const std::string& name : names) {
      const bool is_new = expected.emplace(name, Describe(pattern["dtype"].get<std::string>(), pattern["shape"])).second;
      EXPECT_TRUE(is_new) << name;
    }
  }
  EXPECT_EQ(static_cast<int64_t>(expected.size()), GetParam().num_tensors);
  int64_t num_tensors = 0, bytes = 0;
  for (const TensorSpec& spec : TensorTable(config_)) {
    const auto found = expected.find(spec.name);
    ASSERT_NE(found, expected.end()) << spec.name << " is not in the inventory";
    EXPECT_EQ(found->second, Describe(DtypeName(spec.dtypes.front()), spec.shape)) << spec.name;
    expected.erase(found);
    ++num_tensors;
    bytes += TensorBytes(spec);
  }
  EXPECT_TRUE(expected.empty()) << expected.size() << " tensors are not in the table, one is " << expected.begin()->first;
  EXPECT_EQ(num_tensors, GetParam().num_tensors);
  EXPECT_EQ(bytes, inventory_["bytes"].get<int64_t>());
  EXPECT_EQ(bytes, GetParam().bytes);
}

TEST_P(InventoryTest, GroupsAddUpToTheWhole) {
  int64_t num_tensors = 0, bytes = 0;
  for (const GroupTotals& group : TotalsByGroup(TensorTable(config_))) {
    num_tensors += group.num_tensors;
    bytes += group.bytes;
    EXPECT_FALSE(WeightGroupName(group.group).empty());
  }
  EXPECT_EQ(num_tensors, GetParam().num_tensors);
  EXPECT_EQ(bytes, GetParam().bytes);
}

TEST_P(InventoryTest, BytesPerTokenAtBatchOneAreThoseOfTheInventory) {
  const BytesPerToken bytes = WeightBytesPerStep(config_, 1);
  const Json& expected = inventory_["bytes_per_token_batch_1"];
  EXPECT_EQ(bytes.routed, expected["routed"].get<int64_t>());
  EXPECT_EQ(bytes.shared, expected["shared"].get<int64_t>());
  EXPECT_EQ(bytes.attention, expected["attn"].get<int64_t>());
  EXPECT_EQ(bytes.head, expected["head"].get<int64_t>());
  EXPECT_EQ(bytes.engram, expected["engram"].get<int64_t>());
  EXPECT_EQ(bytes.other, expected["other"].get<int64_t>());
  EXPECT_EQ(bytes.total(), expected["per_token"].get<int64_t>());
}

TEST_P(InventoryTest, BatchesReadMoreExpertsButNeverMoreThanThereAre) {
  int64_t all_experts = 0;
  for (const TensorSpec& spec : TensorTable(config_)) all_experts += spec.group == WeightGroup::kRoutedExpert ? TensorBytes(spec) : 0;
  const BytesPerToken one = WeightBytesPerStep(config_, 1), two = WeightBytesPerStep(config_, 2),
                      many = WeightBytesPerStep(config_, 100000);
  EXPECT_GT(two.routed, one.routed);
  EXPECT_LT(two.routed, 2 * one.routed);  // two tokens share an expert now and then
  EXPECT_EQ(many.routed, all_experts);
  EXPECT_EQ(two.attention, one.attention);
  EXPECT_EQ(two.head, one.head);
}

TEST_P(InventoryTest, RanksTogetherClaimEveryRow) {
  const int64_t whole = ClaimedBytes(config_, {0, 1});
  int64_t replicated = 0, claimed = 0;
  for (const TensorSpec& spec : TensorTable(config_)) {
    if (!spec.claimed) continue;
    claimed += TensorBytes(spec);
    if (spec.shard_axis == ShardAxis::kNone) replicated += TensorBytes(spec);
  }
  EXPECT_EQ(whole, claimed);
  const int ranks = 4;  // divides every sharded dimension at block boundaries, so that no row of scales is shared
  int64_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += ClaimedBytes(config_, {rank, ranks});
  // 24 rows of mixes and 512 of wkv divide by 4; a block of 128 rows of scales may be cut and then counts for both sides.
  const int64_t cut_scales_max = whole / 1000;
  EXPECT_GE(sum - (ranks - 1) * replicated, whole);
  EXPECT_LE(sum - (ranks - 1) * replicated, whole + cut_scales_max);
}

INSTANTIATE_TEST_SUITE_P(Published, InventoryTest,
                         ::testing::Values(Published{"v4_flash", 69187, 159609485896}, Published{"v4_pro", 145116, 864704792696},
                                           Published{"v41_flash", 95819, 509315486040}),
                         [](const auto& info) { return std::string(info.param.folder); });

TEST(WeightTableTest, IsExactlyWhatTheSmallModelsHold) {
  for (const char* folder : {"tests/golden/v4_tiny", "tests/golden/v41_tiny", "models/tiny"}) {
    std::map<std::string, std::string> held;
    for (const char* shard : {"/model-00001-of-00002.safetensors", "/model-00002-of-00002.safetensors"}) {
      for (const auto& [name, tensor] : ReadTensors(folder + std::string(shard))) held[name] = Describe(tensor.dtype, tensor.shape);
    }
    std::map<std::string, std::string> table;
    for (const TensorSpec& spec : TensorTable(ReadModelConfig(SourcePath(folder))))
      table[spec.name] = Describe(DtypeName(spec.dtypes.front()), spec.shape);
    EXPECT_EQ(table, held) << folder;
  }
}

TEST(WeightTableTest, ScalesFollowTheirWeights) {
  std::string weight;
  int num_scales = 0;
  for (const TensorSpec& spec : TensorTable(ReadModelConfig(SourcePath("tests/golden/v41_tiny")))) {
    if (spec.name.ends_with(".scale") && spec.dtypes.front() == Dtype::kF8E8M0) {
      EXPECT_EQ(spec.name.substr(0, spec.name.size() - 6), weight);
      ++num_scales;
    }
    weight = spec.name.ends_with(".weight") ? spec.name.substr(0, spec.name.size() - 7) : "";
  }
  EXPECT_GT(num_scales, 100);
}

TEST(WeightTableTest, BaseModelsHoldE4m3Experts) {
  const ModelConfig config = ReadModelConfig(SourcePath("tests/golden/configs/v4_flash"));
  int num_checked = 0;
  VisitTensorTable(config, ExpertStorage::kE4M3, [&](const TensorSpec& spec) {
    if (spec.name == "layers.42.ffn.experts.255.w2.weight") {
      EXPECT_EQ(spec.dtypes, std::vector<Dtype>{Dtype::kF8E4M3});
      EXPECT_EQ(spec.shape, (std::vector<int64_t>{4096, 2048}));
      ++num_checked;
    } else if (spec.name == "layers.42.ffn.experts.255.w2.scale") {
      EXPECT_EQ(spec.shape, (std::vector<int64_t>{32, 16}));
      ++num_checked;
    }
  });
  EXPECT_EQ(num_checked, 2);
}

TEST(WeightTableTest, KnownExtrasAreDraftsAndVision) {
  for (const char* name : {"mtp.0.norm.weight", "mtp.7.whatever", "vision.blocks.0.w", "aligner.proj.weight", "image_newline"})
    EXPECT_TRUE(IsKnownExtra(name));
  for (const char* name : {"layers.0.attn_norm.weight", "norm.weight", "mtp", "my.vision.w"}) EXPECT_FALSE(IsKnownExtra(name));
}

TEST(ShardRowsTest, TilesTheRowsInOrderAtMultiplesOfTheGrain) {
  for (const int64_t num_rows : {0, 1, 5, 24, 96, 100}) {
    for (const int64_t grain : {1, 3, 32}) {
      for (const int ranks : {1, 2, 3, 7}) {
        int64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const RowShard shard = ShardRows(num_rows, rank, ranks, grain);
          EXPECT_EQ(shard.first, next);
          EXPECT_TRUE(shard.first % grain == 0 || shard.first == num_rows);
          next = shard.first + shard.count;
        }
        EXPECT_EQ(next, num_rows);
      }
    }
  }
}

}  // namespace
}  // namespace tessera
