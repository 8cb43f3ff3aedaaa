// The bytes a bench reports are counted twice: by the ops' costs, and here from the weight table, the experts that the record says were
// chosen, and what the attention of a row at a position must read.
#include "engine/bench_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "attention/kv_row.h"
#include "core/check.h"
#include "engine/context_fill.h"
#include "model/weights.h"
#include "support/golden_model.h"

namespace tessera {
namespace {

std::unique_ptr<StepRunner> Runner(const Model& model, bool record_layers) {
  RunnerOptions options;
  options.num_workers = 2;
  options.max_seqs = 8;
  options.max_context = 400;
  options.prefill_rows = 16;
  options.record_layers = record_layers;
  return std::make_unique<StepRunner>(model, options);
}

BenchOptions Small() {
  BenchOptions options;
  options.repeat = 2;
  options.seed = 4;
  options.stream_mib = 4;
  options.dot_loops = 1000;
  return options;
}

// wo_a is as many matrices as there are groups, and groups whose rows end inside a block of scales read that row of scales both.
int64_t SharedScaleBytes(const ModelConfig& config, const TensorSpec& scales) {
  int64_t scale_rows = 0;
  for (int64_t group = 0; group < config.o_groups; ++group) {
    const int64_t first = group * config.o_lora_rank, last = first + config.o_lora_rank - 1;
    scale_rows += last / config.weight_block_rows - first / config.weight_block_rows + 1;
  }
  return (scale_rows - scales.shape[0]) * scales.shape[1];
}

// Bytes of every tensor that a step reads whole, whatever its tokens are. What an op keeps in its arguments or reads by row is not a
// matrix: norms, biases, sinks, position biases, hashes; the embedding and the tables are counted by row below.
int64_t DenseMatrixBytes(const Model& model) {
  int64_t bytes = 0;
  VisitTensorTable(model.config(), StorageOfExperts(model.checkpoint()), [&](const TensorSpec& spec) {
    const bool is_matrix = spec.shape.size() == 2 && !spec.name.ends_with("ape") && !spec.name.ends_with("tid2eid") &&
                           !spec.name.ends_with("engram.q_weight") && !spec.name.ends_with("engram.k_weight");
    const bool by_row = spec.group == WeightGroup::kEmbed || spec.group == WeightGroup::kEngramTable ||
                        spec.group == WeightGroup::kRoutedExpert || spec.group == WeightGroup::kDraft;
    // wk multiplies the latents of entries that are complete, see below.
    if (spec.claimed && is_matrix && !by_row && !spec.name.ends_with("indexer.wk.weight")) bytes += TensorBytes(spec);
    if (spec.name.ends_with("wo_a.scale")) bytes += SharedScaleBytes(model.config(), spec);
  });
  return bytes;
}

int64_t OneExpertBytes(const Model& model, int layer_idx) {
  int64_t bytes = 0;
  VisitTensorTable(model.config(), StorageOfExperts(model.checkpoint()), [&](const TensorSpec& spec) {
    if (spec.layer_idx == layer_idx && spec.group == WeightGroup::kRoutedExpert && spec.name.find(".experts.0.") != std::string::npos)
      bytes += TensorBytes(spec);
  });
  return bytes;
}

struct BenchCase {
  const char* model;
  int64_t batch;
};

class BenchBytesTest : public ::testing::TestWithParam<std::tuple<const char*, int64_t>> {
 protected:
  void SetUp() override {
    const std::string name = std::get<0>(GetParam());
    model_ = testing::OpenModel(name == "tiny" ? testing::TinyDir() : testing::GoldenDir(name));
  }
  const ModelConfig& config() const { return model_->config(); }

  // Routed experts of the step that `runner` ran last: distinct ids of each layer, from the record.
  int64_t RoutedBytes(const StepRunner& runner, int64_t num_rows) const {
    int64_t bytes = 0;
    for (int layer_idx = 0; layer_idx < config().num_hidden_layers; ++layer_idx) {
      const View<int32_t> ids = runner.record()->layers[static_cast<size_t>(layer_idx)].expert_ids;
      std::set<int32_t> distinct;
      for (int64_t row = 0; row < num_rows; ++row) distinct.insert(ids.Row(row), ids.Row(row) + ids.cols);
      distinct.erase(-1);
      bytes += static_cast<int64_t>(distinct.size()) * OneExpertBytes(*model_, layer_idx);
    }
    return bytes;
  }
  // Rows of caches, tables and the embedding that one decoded token at `position` reads.
  int64_t RowBytes(const StepRunner& runner, int64_t position, int64_t row_idx) const;

  std::unique_ptr<Model> model_;
};

int64_t BenchBytesTest::RowBytes(const StepRunner& runner, int64_t position, int64_t row_idx) const {
  const auto layer_of_entries = [&](int layer_idx) {
    if (!config().v41()) return layer_idx;
    int source = -1;
    for (const int candidate : config().kv_source_layer_ids)
      if (candidate <= layer_idx) source = candidate;
    return source;
  };
  const auto row_bytes = [&](int layer_idx, CacheKind kind) -> int64_t {
    for (const CacheLayout& layout : const_cast<StepRunner&>(runner).cache().layouts())
      if (layout.layer_idx == layer_idx && layout.kind == kind) return layout.row_bytes;
    return 0;
  };
  int64_t bytes = config().hidden_size * 2;
  for (int layer_idx = 0; layer_idx < config().num_hidden_layers; ++layer_idx) {
    bytes += std::min(position + 1, config().sliding_window) * row_bytes(layer_idx, CacheKind::kWindow);
    if (config().IsEngramLayer(layer_idx))
      bytes += config().engram_columns() * (config().engram_head_dim + (config().engram_head_dim + 31) / 32);
    const int ratio = config().compress_ratios[static_cast<size_t>(layer_idx)];
    if (ratio == 0) continue;
    const int source = layer_of_entries(layer_idx);
    const int64_t visible = (position + 1) / ratio;
    if (config().IsKvSource(layer_idx) && row_idx == 0 && (position + 1) % ratio == 0)
      bytes += config().index_head_dim * config().head_dim * 2;
    const LayerRecord& record = runner.record()->layers[static_cast<size_t>(layer_idx)];
    const bool selects = record.selected_counts != nullptr;
    bytes += (selects ? record.selected_counts[row_idx] : visible) * row_bytes(source, CacheKind::kCompressed);
    if (!config().HasIndexer(layer_idx) || visible <= config().index_topk) continue;
    int64_t scored = visible;
    // Index layers above the candidate source score the entries of its blocks.
    if (config().candidate_source_layer_id >= 0 && layer_idx > config().candidate_source_layer_id) {
      const LayerRecord& source_record = runner.record()->layers[static_cast<size_t>(config().candidate_source_layer_id)];
      scored = std::min(scored, source_record.candidate_counts[row_idx] * config().candidate_block_size);
    }
    bytes += scored * (row_bytes(source, CacheKind::kIndexCodes) + row_bytes(source, CacheKind::kIndexScales));
  }
  return bytes;
}

TEST_P(BenchBytesTest, AreThoseOfTheRoutingAndThePositions) {
  const int64_t batch = std::get<1>(GetParam());
  for (const int64_t context : {0, 299}) {
    BenchOptions options = Small();
    options.decode = 1;  // one step at position context + 1
    options.batch = batch;
    options.context = context;
    const std::unique_ptr<StepRunner> runner = Runner(*model_, true);
    const BenchReport report = RunBench(*runner, options, [](const std::string&) {});
    ASSERT_TRUE(report.decode);
    // The record is that of the repeat with clocks, whose costs were reported.
    int64_t expected = DenseMatrixBytes(*model_) + RoutedBytes(*runner, batch);
    for (int64_t row = 0; row < batch; ++row) expected += RowBytes(*runner, context + 1, row);
    EXPECT_EQ(static_cast<int64_t>(report.decode->bytes_per_step), expected) << "context " << context;
    EXPECT_GT(report.decode->flops_per_step, static_cast<double>(batch) * 2 * DenseMatrixBytes(*model_) / 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BenchBytesTest,
                         ::testing::Combine(::testing::Values("v4_tiny", "v41_tiny", "tiny"), ::testing::Values(int64_t{1}, int64_t{7})));

TEST(BenchRunTest, ReportsBothPhases) {
  const std::unique_ptr<Model> model = testing::OpenModel(testing::TinyDir());
  const std::unique_ptr<StepRunner> runner = Runner(*model, false);
  BenchOptions options = Small();
  options.prefill = 40;
  options.decode = 3;
  options.batch = 4;
  options.context = 100;
  options.token_by_token = true;
  std::vector<std::string> lines;
  const BenchReport report = RunBench(*runner, options, [&](const std::string& line) { lines.push_back(line); });
  EXPECT_EQ(lines.size(), 3u);
  ASSERT_TRUE(report.prefill && report.decode);
  EXPECT_EQ(report.prefill->num_steps, 3);
  EXPECT_EQ(report.prefill->rows_per_step, 16);
  EXPECT_EQ(report.decode->num_steps, 3);
  EXPECT_EQ(report.decode->num_tokens, 12);
  EXPECT_EQ(report.decode->rows_per_step, 4);
  EXPECT_GT(report.token_by_token_tokens_per_s, 0);
  for (const PhaseReport* phase : {&*report.prefill, &*report.decode}) {
    EXPECT_GT(phase->tokens_per_s.min, 0);
    EXPECT_LE(phase->tokens_per_s.min, phase->tokens_per_s.median);
    EXPECT_LE(phase->tokens_per_s.median, phase->tokens_per_s.max);
    EXPECT_GT(phase->bytes_per_step, 0);
    EXPECT_GT(phase->flops_per_step, 0);
    int64_t num_steps = 0;
    for (const TimingReport& bucket : phase->timing) num_steps += bucket.num_steps;
    EXPECT_EQ(num_steps, phase->num_steps);
  }
  EXPECT_GT(report.rates.stream_gb_per_s.median, 0);
  EXPECT_GT(report.rates.DotGflopPerS(), 0);
  EXPECT_EQ(report.rates.num_workers, 2);
}

TEST(BenchRunTest, RefusesWhatDoesNotFit) {
  const std::unique_ptr<Model> model = testing::OpenModel(testing::TinyDir());
  const std::unique_ptr<StepRunner> runner = Runner(*model, false);
  const auto none = [](const std::string&) {};
  BenchOptions options = Small();
  options.decode = 1;
  options.batch = 9;
  EXPECT_THROW(RunBench(*runner, options, none), Error);
  options.batch = 1;
  options.context = 399;
  EXPECT_THROW(RunBench(*runner, options, none), Error);
  options.context = 398;
  EXPECT_EQ(BenchContext(options), 400);
  EXPECT_NO_THROW(RunBench(*runner, options, none));
}

}  // namespace
}  // namespace tessera
