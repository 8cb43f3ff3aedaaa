// The caches of a model and its forward pass as one plan, replayed against the references of tests/golden.
#include "model/forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "attention/sparse_attention.h"
#include "comm/self.h"
#include "model/sequence_state.h"
#include "plan/plan_set.h"
#include "support/golden_map.h"

namespace tessera {
namespace {

using testing::SourcePath;

ModelConfig Released(const std::string& name) { return ReadModelConfig(SourcePath("tests/golden/configs/" + name)); }

using LayoutMap = std::map<std::pair<int, CacheKind>, CacheLayout>;
LayoutMap Layouts(const ModelConfig& config, Numerics numerics, int64_t max_context, int32_t max_rows) {
  LayoutMap layouts;
  for (const CacheLayout& layout : CacheLayouts(config, numerics, {max_context, max_rows}))
    EXPECT_TRUE(layouts.insert({{layout.layer_idx, layout.kind}, layout}).second) << "layer " << layout.layer_idx << " has a kind twice";
  return layouts;
}
void ExpectRing(const LayoutMap& layouts, int layer_idx, CacheKind kind, int64_t rows, int64_t row_bytes, int64_t ring_tokens) {
  SCOPED_TRACE(::testing::Message() << "layer " << layer_idx << " kind " << static_cast<int>(kind));
  const CacheLayout& layout = layouts.at({layer_idx, kind});
  EXPECT_EQ(layout.rows_per_slot, rows);
  EXPECT_EQ(layout.row_bytes, row_bytes);
  EXPECT_EQ(layout.ring_tokens, ring_tokens);
}
void ExpectEntries(const LayoutMap& layouts, int layer_idx, CacheKind kind, int ratio, int64_t max_context, int64_t row_bytes) {
  SCOPED_TRACE(::testing::Message() << "layer " << layer_idx << " kind " << static_cast<int>(kind));
  const CacheLayout& layout = layouts.at({layer_idx, kind});
  EXPECT_EQ(layout.ratio, ratio);
  EXPECT_EQ(layout.ring_tokens, 0);
  EXPECT_EQ(layout.row_bytes, row_bytes);
  EXPECT_GE(layout.rows_per_slot, max_context / ratio);
}
int64_t CountKind(const LayoutMap& layouts, CacheKind kind) {
  return std::count_if(layouts.begin(), layouts.end(), [&](const auto& item) { return item.first.second == kind; });
}

constexpr int64_t kContext = 10000;
constexpr int32_t kRows = 512;

TEST(CacheLayoutsTest, V41FlashKeeps890BytesATokenBesideItsRings) {
  const ModelConfig config = Released("v41_flash");
  const LayoutMap layouts = Layouts(config, Numerics::kBf16, kContext, kRows);
  for (int layer_idx = 0; layer_idx < 40; ++layer_idx) ExpectRing(layouts, layer_idx, CacheKind::kWindow, 127 + kRows, 512 + 16, 127);
  for (const int source : {2, 8, 14, 20}) {
    const int ratio = source == 20 ? 1 : 2;
    ExpectEntries(layouts, source, CacheKind::kCompressed, ratio, kContext, 288);
    ExpectEntries(layouts, source, CacheKind::kIndexCodes, ratio, kContext, 64);
    ExpectEntries(layouts, source, CacheKind::kIndexScales, ratio, kContext, 4);
    if (source < 20) ExpectRing(layouts, source, CacheKind::kPending, 2, 2 * 512 * 4, 2);
  }
  ExpectRing(layouts, 0, CacheKind::kEngramHistory, 3, 4, 3);
  EXPECT_EQ(layouts.size(), 40u + 4 * 3 + 3 + 1);

  // 2.5 entries a token of 288 + 68 bytes (spec/model.md section 10); everything else is a ring that is full by then.
  const std::vector<CacheLayout> list = CacheLayouts(config, Numerics::kBf16, {kContext, kRows});
  for (const int64_t tokens : {128, 1000, 9000})
    EXPECT_EQ(SequenceStateBytes(list, tokens + 2) - SequenceStateBytes(list, tokens), 2 * 890) << tokens;
  EXPECT_EQ(SequenceStateBytes(list, 1000), 1000 * 890 + 40 * 127 * 528 + 3 * 2 * 4096 + 3 * 4);
}

TEST(CacheLayoutsTest, V4FlashHasTwoCompressorsOnSparseLayersAndOneOnDenseOnes) {
  for (const Numerics numerics : {Numerics::kBf16, Numerics::kReference, Numerics::kFp32}) {
    const LayoutMap layouts = Layouts(Released("v4_flash"), numerics, kContext, kRows);
    // 448 codes, 7 scales and the rope tail in the activation type, rounded up to 16.
    const int64_t row_bytes = numerics == Numerics::kFp32 ? 720 : 592;
    for (int layer_idx = 0; layer_idx < 43; ++layer_idx) {
      ExpectRing(layouts, layer_idx, CacheKind::kWindow, 127 + kRows, row_bytes, 127);
      if (layer_idx < 2) continue;
      const int ratio = layer_idx % 2 == 0 ? 4 : 128;
      ExpectEntries(layouts, layer_idx, CacheKind::kCompressed, ratio, kContext, row_bytes);
      if (ratio == 128) {
        ExpectRing(layouts, layer_idx, CacheKind::kPending, 128, 2 * 512 * 4, 128);
        continue;
      }
      ExpectRing(layouts, layer_idx, CacheKind::kPending, 8, 2 * 1024 * 4, 8);
      ExpectRing(layouts, layer_idx, CacheKind::kIndexPending, 8, 2 * 256 * 4, 8);
      ExpectEntries(layouts, layer_idx, CacheKind::kIndexCodes, ratio, kContext, 64);
      ExpectEntries(layouts, layer_idx, CacheKind::kIndexScales, ratio, kContext, 4);
    }
    EXPECT_EQ(layouts.size(), 43u + 20 * 2 + 21 * 5);
  }
}

TEST(CacheLayoutsTest, V4ProHasCompressedEntriesOnEveryLayer) {
  const LayoutMap layouts = Layouts(Released("v4_pro"), Numerics::kBf16, kContext, kRows);
  EXPECT_EQ(CountKind(layouts, CacheKind::kCompressed), 61);
  EXPECT_EQ(CountKind(layouts, CacheKind::kIndexCodes), 30);
  EXPECT_EQ(CountKind(layouts, CacheKind::kIndexPending), 30);
  EXPECT_EQ(CountKind(layouts, CacheKind::kEngramHistory), 0);
}

TEST(CacheLayoutsTest, AWindowOfOneTokenIsStillARing) {
  ModelConfig config = Released("v41_flash");
  config.sliding_window = 1;
  const std::vector<CacheLayout> list = CacheLayouts(config, Numerics::kBf16, {kContext, 1});
  // A snapshot of many tokens stays inside the ring's rows.
  for (const CacheLayout& layout : list) {
    if (layout.kind != CacheKind::kWindow) continue;
    EXPECT_EQ(SequenceStateBytes({layout}, 5000), layout.rows_per_slot * layout.row_bytes);
  }
}

TEST(CacheLayoutsTest, AReachKeepsWhatASnapshotBehindItNeeds) {
  constexpr int32_t kReach = 128;
  for (const char* name : {"v4_flash", "v4_pro", "v41_flash"}) {
    const std::vector<CacheLayout> without = CacheLayouts(Released(name), Numerics::kBf16, {kContext, kRows});
    const std::vector<CacheLayout> with = CacheLayouts(Released(name), Numerics::kBf16, {kContext, kRows, kReach});
    // A chunk of any size that ends up to the reach behind a whole number of entries, and any chunk before it.
    for (int64_t late = 0; late <= kReach; ++late) EXPECT_TRUE(RingsHold(with, 1024, 1024 + late)) << name << ", " << late << " later";
    EXPECT_FALSE(RingsHold(without, 1024, 1024 + 8)) << name;
    for (size_t i = 0; i < with.size(); ++i) {
      EXPECT_EQ(with[i].ring_tokens, without[i].ring_tokens);
      const bool grows = with[i].kind == CacheKind::kEngramHistory || (with[i].kind == CacheKind::kPending && with[i].ratio == 4) ||
                         with[i].kind == CacheKind::kIndexPending;
      EXPECT_EQ(with[i].rows_per_slot, without[i].rows_per_slot + (grows ? kReach : 0)) << name << ", " << CacheKindName(with[i].kind);
    }
  }
}

// One sequence of a million tokens: address space is reserved, the last row of everything can be written, no offset wraps.
TEST(CacheLayoutsTest, AMillionTokensOfEveryReleasedModel) {
  constexpr int64_t kMillion = 1048576;
  for (const char* name : {"v4_flash", "v4_pro", "v41_flash"}) {
    const ModelConfig config = Released(name);
    EXPECT_GE(config.max_position_embeddings, kMillion) << name;
    const std::vector<CacheLayout> layouts = CacheLayouts(config, Numerics::kBf16, {kMillion, kRows, 128});
    KvCache cache(layouts, 1);
    int64_t rows_bytes = 0;
    for (const CacheLayout& layout : layouts) {
      const RowStore store = cache.Store(layout.layer_idx, layout.kind);
      const int64_t last_row = layout.is_ring() ? (kMillion - 1) % layout.rows_per_slot : kMillion / layout.ratio - 1;
      uint8_t* row = store.Row(0, last_row);
      std::fill_n(row, layout.row_bytes, uint8_t{0x5a});
      EXPECT_EQ(row - store.Slot(0), last_row * layout.row_bytes);
      rows_bytes += layout.rows_per_slot * layout.row_bytes;
    }
    EXPECT_GE(static_cast<int64_t>(cache.reserved_bytes()), rows_bytes);
    EXPECT_GE(ResidentBytes(layouts, kMillion), SequenceStateBytes(layouts, kMillion));
    // 890 bytes a token of V4.1: less than a gigabyte.
    const int64_t second_half_bytes = SequenceStateBytes(layouts, kMillion) - SequenceStateBytes(layouts, kMillion / 2);
    EXPECT_TRUE(!config.v41() || second_half_bytes == kMillion / 2 * 890) << second_half_bytes;
    // Dense layers attend to every entry: the one scratch that grows with the context is ten megabytes a worker then.
    EXPECT_LT(SparseAttentionScratchBytes<bf16>(config.head_dim, config.sliding_window + kMillion / 128 + 1), 16 << 20) << name;
    // A sequence of a few tokens pays for its pages alone.
    cache.Release(0);
    cache.Populate(0, 1000);
    EXPECT_LT(ResidentBytes(layouts, 1000), int64_t{200} << 20) << name;
  }
}

// A plan of one bucket that holds a whole prompt, recorded layer by layer.
class GoldenForwardTest : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int32_t kBucket = 48;

  void Run(const std::vector<int32_t>& ids) {
    const std::string dir = SourcePath(std::string("tests/golden/") + GetParam());
    model_ = std::make_unique<Model>(dir, testing::GoldenTokenMap(), ClaimOptions{});
    const ModelConfig& config = model_->config();
    cache_ = std::make_unique<KvCache>(CacheLayouts(config, Numerics::kFp32, {kBucket, kBucket}), 2);
    step_ = Step::Allocate(step_arena_, kBucket, 1);
    record_ = StepRecord::Allocate(record_arena_, config, kBucket);
    ForwardContext context;
    context.model = model_.get();
    context.numerics = Numerics::kFp32;
    context.step = &step_;
    context.cache = cache_.get();
    context.comm = &comm_;
    context.record = &record_;
    context.max_context = kBucket;
    context.max_rows = kBucket;
    step_.Clear();
    plans_ = std::make_unique<PlanSet>(std::vector<int32_t>{kBucket}, pool_);
    const size_t bytes_max = ActivationBytesMax(config, Numerics::kFp32, kBucket, pool_.num_workers());
    plans_->Capture(
        bytes_max, [&](PlanBuilder& builder) { outputs_ = BuildForward(builder, context); }, [](int) {});
    EXPECT_LE(plans_->activation_bytes(), bytes_max);
    const int32_t num_rows = static_cast<int32_t>(ids.size());
    step_.AddSegment(0, 0, ids.data(), num_rows, num_rows);
    step_.Pad(kBucket, false);
    plans_->Replay(step_);
  }

  WorkerPool pool_{{2, false}};
  Arena step_arena_{"step", 1 << 20}, record_arena_{"records", size_t{1} << 30};
  SelfCommunicator comm_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
  Step step_;
  StepRecord record_;
  ForwardOutputs outputs_;
  std::unique_ptr<PlanSet> plans_;
};

// Tolerances as tests/golden/README.md gives them for prompts: 5e-2 for logits and streams; choices are equal.
TEST_P(GoldenForwardTest, LogitsStreamsAndExpertsOfAPromptAgree) {
  const auto golden = testing::ReadTensors(std::string("tests/golden/") + GetParam() + "/vectors/golden.safetensors");
  const std::vector<int32_t> ids = golden.at("p40.ids").As<int32_t>();
  Run(ids);
  const auto expect_rows = [&](const std::vector<float>& expected, const View<float>& got, const std::string& what) {
    ASSERT_EQ(static_cast<int64_t>(expected.size()), static_cast<int64_t>(ids.size()) * got.cols) << what;
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(got.data[i], expected[i], 5e-2) << what << " element " << i;
  };
  expect_rows(golden.at("p40.logits").As<float>(), outputs_.logits, "logits");
  ASSERT_EQ(record_.layers.size(), static_cast<size_t>(model_->config().num_hidden_layers));
  for (size_t l = 0; l < record_.layers.size(); ++l) {
    const std::string layer = "p40.L" + std::to_string(l) + ".";
    expect_rows(golden.at(layer + "streams").As<float>(), record_.layers[l].streams, layer + "streams");
    // The reference lists experts in another order.
    const std::vector<int32_t> experts = golden.at(layer + "router_ids").As<int32_t>();
    const int64_t k = record_.layers[l].expert_ids.cols;
    for (int64_t row = 0; row < static_cast<int64_t>(ids.size()); ++row) {
      std::vector<int32_t> expected(experts.begin() + row * k, experts.begin() + (row + 1) * k);
      std::sort(expected.begin(), expected.end());
      const int32_t* got = record_.layers[l].expert_ids.Row(row);
      ASSERT_EQ(std::vector<int32_t>(got, got + k), expected) << layer << " row " << row;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Models, GoldenForwardTest, ::testing::Values("v4_tiny", "v41_tiny"));

}  // namespace
}  // namespace tessera
