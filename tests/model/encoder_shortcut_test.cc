#include "model/encoder_shortcut.h"

#include <gtest/gtest.h>

#include "support/tensors.h"

namespace tessera {
namespace {

ModelConfig Released(const std::string& name) { return ReadModelConfig(testing::SourcePath("tests/golden/configs/" + name)); }

// The definition, layer by layer from the top: what a layer must compute in full so that the rows above find their windows.
int32_t DepthByReach(const ModelConfig& config, int64_t distance, int32_t encoder_layers) {
  int64_t rows_in_full = 1;  // the last layer: the row in front of the boundary
  for (int32_t layer_idx = config.num_hidden_layers - 1; layer_idx >= encoder_layers; --layer_idx) {
    if (distance < rows_in_full) return layer_idx + 1;
    rows_in_full += config.sliding_window - 1;
  }
  return encoder_layers;
}

TEST(EncoderShortcutTest, DepthIsTheReachOfTheWindowsAbove) {
  const ModelConfig config = Released("v41_flash");
  ASSERT_EQ(EncoderLayers(config), 20);
  for (int64_t distance = 0; distance < 3000; ++distance)
    ASSERT_EQ(RowDepth(config, distance), DepthByReach(config, distance, 20)) << distance << " before the boundary";
  EXPECT_EQ(RowDepth(config, 0), 40);
  EXPECT_EQ(RowDepth(config, 1), 39);
  EXPECT_EQ(RowDepth(config, 127), 39);
  EXPECT_EQ(RowDepth(config, 128), 38);
  EXPECT_EQ(RowDepth(config, 2413), 21) << "layer 20 runs on the last 2,414 rows";
  EXPECT_EQ(RowDepth(config, 2414), 20);
}

TEST(EncoderShortcutTest, V4HasNone) {
  const ModelConfig config = Released("v4_flash");
  EXPECT_EQ(EncoderLayers(config), config.num_hidden_layers);
  for (const int64_t distance : {0, 1, 1000, 1000000}) EXPECT_EQ(RowDepth(config, distance), config.num_hidden_layers);
}

// Share of the layers' rows that a prompt of V4.1-Flash leaves out.
double Saved(const ModelConfig& config, int64_t num_tokens) {
  int64_t passed = 0;
  for (int64_t distance = 0; distance < num_tokens; ++distance) passed += RowDepth(config, distance);
  return 1 - static_cast<double>(passed) / static_cast<double>(num_tokens * config.num_hidden_layers);
}

TEST(EncoderShortcutTest, SavesAQuarterOfAPromptOf2414Tokens) {
  const ModelConfig config = Released("v41_flash");
  EXPECT_NEAR(Saved(config, 512), 0.06, 0.005);
  EXPECT_NEAR(Saved(config, 2414), 0.25, 0.005);
  EXPECT_NEAR(Saved(config, 16384), 0.46, 0.005);
}

class LayerRowsTest : public ::testing::Test {
 protected:
  LayerRowsTest() : config_(Released("v41_flash")), arena_("rows", size_t{1} << 24), step_(Step::Allocate(arena_, kRows, 3)) {}
  void Add(int32_t slot, int64_t start_pos, int32_t count, int64_t boundary, int32_t num_logits = 0) {
    const std::vector<int32_t> ids(static_cast<size_t>(count), 1);
    step_.AddSegment(slot, start_pos, ids.data(), count, num_logits);
    if (boundary > 0) SetDepths(config_, {boundary}, step_);
  }
  static constexpr int32_t kRows = 512;
  ModelConfig config_;
  Arena arena_;
  Step step_;
};

TEST_F(LayerRowsTest, ListsHoldTheRowsThatReachTheLayer) {
  const LayerRows lists = LayerRows::Allocate(arena_, config_, kRows);
  Add(0, 700, 1, 0);          // decodes
  Add(1, 0, 200, 5000);       // far from the end of its prompt
  Add(2, 256, 300, 556, 1);   // ends its prompt
  lists.Compact(step_);
  for (int layer_idx = 0; layer_idx <= config_.num_hidden_layers; ++layer_idx) {
    const RowList rows = lists.Entering(step_, layer_idx);
    std::vector<int32_t> expected;
    for (int32_t row = 0; row < step_.num_rows; ++row)
      if (step_.depth[row] >= layer_idx || layer_idx <= 20) expected.push_back(row);
    ASSERT_EQ(rows.size(), static_cast<int64_t>(expected.size())) << "layer " << layer_idx;
    for (int64_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], expected[static_cast<size_t>(i)]) << "layer " << layer_idx;
  }
  EXPECT_EQ(lists.Entering(step_, 20).size(), 501);
  EXPECT_EQ(lists.Passing(step_, 20).size(), 301) << "the middle of the long prompt ends at the last KV source";
  EXPECT_EQ(lists.Passing(step_, 39).size(), 2) << "the decoding row and the last row of the prompt";
}

TEST_F(LayerRowsTest, TheNextBoundaryOfEachRowDecides) {
  const std::vector<int32_t> ids(300, 1);
  step_.AddSegment(0, 1000, ids.data(), 300, 1);
  SetDepths(config_, {1100, 1101, 1300}, step_);
  for (int32_t row = 0; row < 300; ++row) {
    const int64_t position = 1000 + row;
    const int64_t boundary = position < 1100 ? 1100 : position < 1101 ? 1101 : 1300;
    ASSERT_EQ(step_.depth[row], RowDepth(config_, boundary - 1 - position)) << "position " << position;
  }
}

TEST_F(LayerRowsTest, RowsThatWantLogitsMustBeAtTheBoundary) {
  EXPECT_DEATH(Add(0, 0, 20, 30, 1), "wants logits before the boundary 30");
  EXPECT_DEATH(Add(0, 0, 20, 20, 2), "wants logits before the boundary 20");
  EXPECT_DEATH(Add(0, 0, 20, 19), "the last at 19, the segment ends at 20");
}

}  // namespace
}  // namespace tessera
