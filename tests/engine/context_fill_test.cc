// A filled context is one a model could have had: every code and scale is valid, and what follows is finite.
#include "engine/context_fill.h"

#include <gtest/gtest.h>

#include <cmath>

#include "attention/kv_row.h"
#include "support/golden_model.h"

namespace tessera {
namespace {

class ContextFillTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    model_ = testing::OpenModel(name == "tiny" ? testing::TinyDir() : testing::GoldenDir(name));
  }
  std::unique_ptr<StepRunner> Runner(Numerics numerics) {
    RunnerOptions options;
    options.numerics = numerics;
    options.num_workers = 2;
    options.max_seqs = 2;
    options.max_context = 400;
    options.prefill_rows = 16;
    return std::make_unique<StepRunner>(*model_, options);
  }
  const ModelConfig& config() const { return model_->config(); }

  std::unique_ptr<Model> model_;
};

// Calls check(layout, row) for every row of a context of `num_tokens`.
template <class F>
void ForEachRow(const KvCache& cache, int32_t slot, int64_t num_tokens, F&& check) {
  for (const CacheLayout& layout : cache.layouts()) {
    const RowStore store = cache.Store(layout.layer_idx, layout.kind);
    if (layout.ring_tokens > 0) {
      for (int64_t p = std::max<int64_t>(0, num_tokens - layout.ring_tokens); p < num_tokens; ++p) check(layout, store.RingRow(slot, p));
    } else {
      for (int64_t e = 0; e < num_tokens / layout.ratio; ++e) check(layout, store.Row(slot, e));
    }
  }
}

TEST_P(ContextFillTest, EveryRowIsValidAndOfUnitSize) {
  const std::unique_ptr<StepRunner> runner = Runner(Numerics::kFp32);
  constexpr int64_t kTokens = 300;
  FillContext(runner->cache(), config(), Numerics::kFp32, 1, kTokens, 3);
  double squares = 0;
  int64_t num_values = 0, num_rows = 0;
  ForEachRow(runner->cache(), 1, kTokens, [&](const CacheLayout& layout, const uint8_t* row) {
    ++num_rows;
    const bool is_kv = layout.kind == CacheKind::kWindow || layout.kind == CacheKind::kCompressed;
    if (is_kv) {
      const KvFormat format = !config().v41()                            ? KvFormat::kV4
                              : layout.kind == CacheKind::kWindow ? KvFormat::kV41Window
                                                                         : KvFormat::kV41Compressed;
      const KvRowLayout kv = KvRowLayout::Make(format, config().head_dim, config().qk_rope_head_dim, 4);
      std::vector<float> x(static_cast<size_t>(config().head_dim));
      DecodeKvRow(kv, row, x.data());
      for (const float value : x) {
        ASSERT_TRUE(std::isfinite(value));
        squares += double{value} * value;
        ++num_values;
      }
    } else if (layout.kind == CacheKind::kIndexScales) {
      for (int64_t i = 0; i < layout.row_bytes; ++i) ASSERT_NE(row[i], 255);
    } else if (layout.kind == CacheKind::kPending || layout.kind == CacheKind::kIndexPending) {
      for (int64_t i = 0; i < layout.row_bytes / 4; ++i) {
        float value;
        std::memcpy(&value, row + 4 * i, 4);
        ASSERT_TRUE(std::isfinite(value) && std::fabs(value) <= 2);
      }
    } else if (layout.kind == CacheKind::kEngramHistory) {
      int32_t id;
      std::memcpy(&id, row, 4);
      ASSERT_TRUE(id >= 0 && id < config().engram_compressed_vocab_size) << id;
    }
  });
  EXPECT_GT(num_rows, 0);
  const double root_mean_square = std::sqrt(squares / static_cast<double>(num_values));
  EXPECT_GT(root_mean_square, 0.5);
  EXPECT_LT(root_mean_square, 2.0);
}

TEST_P(ContextFillTest, WhatFollowsIsFiniteAndTheSameEachTime) {
  for (const Numerics numerics : {Numerics::kBf16, Numerics::kFp32}) {
    const std::unique_ptr<StepRunner> runner = Runner(numerics);
    std::vector<float> first;
    for (int round = 0; round < 2; ++round) {
      FillContext(runner->cache(), config(), numerics, 0, 300, 5);
      const std::vector<int32_t> ids = {5, 9, 2, 7, 11, 30, 8, 4};
      std::vector<float> logits;
      for (int64_t i = 0; i < 8; ++i) {
        runner->step().Clear();
        runner->step().AddSegment(0, 300 + i, ids.data() + i, 1, 1);
        runner->Replay();
        logits.insert(logits.end(), runner->logits().Row(0), runner->logits().Row(0) + config().vocab_size);
      }
      for (const float logit : logits) ASSERT_TRUE(std::isfinite(logit));
      if (round == 0) first = logits;
      EXPECT_EQ(testing::FirstDifference(first, logits), -1);
    }
  }
}

TEST_P(ContextFillTest, SlotsDiffer) {
  const std::unique_ptr<StepRunner> runner = Runner(Numerics::kBf16);
  FillContext(runner->cache(), config(), Numerics::kBf16, 0, 100, 5);
  FillContext(runner->cache(), config(), Numerics::kBf16, 1, 100, 5);
  const RowStore store = runner->cache().Store(0, CacheKind::kWindow);
  EXPECT_NE(std::memcmp(store.RingRow(0, 99), store.RingRow(1, 99), static_cast<size_t>(store.row_bytes)), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, ContextFillTest, ::testing::Values("v4_tiny", "v41_tiny", "tiny"));

}  // namespace
}  // namespace tessera
