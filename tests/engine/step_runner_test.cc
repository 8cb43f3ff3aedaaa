// Equality of bits: how a sequence is cut, batched, bucketed, threaded, padded or resumed must not change one bit of its logits
// (docs/numerics.md). On texts long enough that HCA entries complete, rings wrap and candidates bite.
#include "engine/step_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "core/check.h"
#include "core/random.h"
#include "model/encoder_shortcut.h"
#include "model/sequence_state.h"
#include "support/golden_model.h"
#include "support/sanitized.h"

namespace tessera {
namespace {

using testing::FirstDifference;
using testing::LogitsInChunks;

constexpr int64_t kNumTokens = 312;

std::vector<int32_t> RandomIds(uint64_t stream, int64_t count, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(UniformDouble(7, stream, static_cast<uint64_t>(i)) * static_cast<double>(vocab_size)));
  return ids;
}

std::unique_ptr<StepRunner> Runner(const Model& model, Numerics numerics, int workers, int32_t prefill_rows, int32_t max_seqs = 2) {
  RunnerOptions options;
  options.numerics = numerics;
  options.num_workers = workers;
  options.max_seqs = max_seqs;
  options.max_context = 400;
  options.prefill_rows = prefill_rows;
  return std::make_unique<StepRunner>(model, options);
}

// What a row of floats is compared in: the rows of `part` against those of `whole` from `first` on.
void ExpectRows(const std::vector<float>& whole, int64_t first, int64_t cols, View<const float> part, const std::string& what) {
  for (int64_t row = 0; row < part.rows; ++row)
    ASSERT_EQ(std::memcmp(whole.data() + (first + row) * cols, part.Row(row), static_cast<size_t>(cols) * sizeof(float)), 0)
        << what << ": position " << first + row;
}

class BitsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    model_ = testing::OpenModel(name == "tiny" ? testing::TinyDir() : testing::GoldenDir(name));
    ids_ = RandomIds(0, kNumTokens, model_->config().vocab_size);
    runner_ = Runner(*model_, Numerics::kBf16, 2, 512, 8);
    whole_ = LogitsInChunks(*runner_, 0, ids_, [](int64_t) { return kNumTokens; });
    vocab_ = model_->config().vocab_size;
  }
  View<const float> Step(StepRunner& runner, int32_t slot, int64_t first, int64_t rows) {
    runner.step().Clear();
    runner.step().AddSegment(slot, first, ids_.data() + first, static_cast<int32_t>(rows), static_cast<int32_t>(rows));
    runner.Replay();
    return runner.logits();
  }

  std::unique_ptr<Model> model_;
  std::vector<int32_t> ids_;
  std::unique_ptr<StepRunner> runner_;
  std::vector<float> whole_;  // logits of every position, computed in one chunk
  int64_t vocab_ = 0;
};

// Positions around which prompts end: every small one, around one HCA entry, around two.
std::vector<int64_t> PromptEnds() {
  std::vector<int64_t> ends;
  for (int64_t p = 1; p <= 80; ++p) ends.push_back(p);
  for (int64_t p = 120; p <= 136; ++p) ends.push_back(p);
  for (int64_t p = 250; p <= 262; ++p) ends.push_back(p);
  if (!testing::kSanitized) return ends;
  std::vector<int64_t> spread;
  for (size_t i = 0; i < ends.size(); i += 23) spread.push_back(ends[i]);
  return spread;
}

TEST_P(BitsTest, ChunkSize) {
  for (const int64_t chunk : {1, 2, 3, 5, 17, 64}) {
    if (testing::kSanitized && chunk != 17) continue;
    EXPECT_EQ(FirstDifference(whole_, LogitsInChunks(*runner_, 1, ids_, [=](int64_t) { return chunk; })), -1) << "chunks of " << chunk;
  }
}

TEST_P(BitsTest, ChunkSizeInEveryNumericsMode) {
  for (const Numerics numerics : {Numerics::kReference, Numerics::kFp32}) {
    const std::unique_ptr<StepRunner> runner = Runner(*model_, numerics, 2, 512);
    const std::vector<float> whole = LogitsInChunks(*runner, 0, ids_, [](int64_t) { return kNumTokens; });
    for (const int64_t chunk : {1, 5, 64}) {
      if (testing::kSanitized && chunk < 64) continue;
      EXPECT_EQ(FirstDifference(whole, LogitsInChunks(*runner, 1, ids_, [=](int64_t) { return chunk; })), -1)
          << "chunks of " << chunk << ", numerics " << static_cast<int>(numerics);
    }
  }
}

TEST_P(BitsTest, WorkerCount) {
  for (const int workers : {1, 3}) {
    if (testing::kSanitized && workers == 1) continue;
    const std::unique_ptr<StepRunner> runner = Runner(*model_, Numerics::kBf16, workers, 64);
    EXPECT_EQ(FirstDifference(whole_, LogitsInChunks(*runner, 0, ids_, [](int64_t) { return 64; })), -1) << workers << " workers";
    EXPECT_EQ(FirstDifference(std::vector<float>(whole_.begin(), whole_.begin() + 40 * vocab_),
                              LogitsInChunks(*runner, 1, {ids_.begin(), ids_.begin() + 40}, [](int64_t) { return 1; })),
              -1)
        << workers << " workers, token by token";
  }
}

TEST_P(BitsTest, DecodeAfterPromptsOfEveryLength) {
  for (const int64_t end : PromptEnds()) {
    ExpectRows(whole_, 0, vocab_, Step(*runner_, 1, 0, end), "prompt of " + std::to_string(end));
    for (int64_t position = end; position < std::min(end + 12, kNumTokens); ++position)
      ExpectRows(whole_, position, vocab_, Step(*runner_, 1, position, 1), "decode after a prompt of " + std::to_string(end));
  }
}

TEST_P(BitsTest, SnapshotAndRestoreIntoAnotherSlot) {
  for (const int64_t end : PromptEnds()) {
    Step(*runner_, 1, 0, end);
    const StateSnapshot snapshot = SnapshotState(runner_->cache(), 1, {end});
    EXPECT_EQ(snapshot.bytes(), SnapshotBytes(runner_->cache().layouts(), {end}));
    runner_->cache().Release(2);
    RestoreState(runner_->cache(), 2, snapshot);
    const int64_t rows = std::min<int64_t>(9, kNumTokens - end);
    ExpectRows(whole_, end, vocab_, Step(*runner_, 2, end, rows), "chunk after a snapshot at " + std::to_string(end));
  }
}

TEST_P(BitsTest, SevenSequencesTogether) {
  struct Running {
    std::vector<int32_t> ids;
    std::vector<float> alone;
    int64_t done = 0;
  };
  std::vector<Running> sequences(7);
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].ids = RandomIds(i + 1, 140 + 23 * static_cast<int64_t>(i), vocab_);
    sequences[i].alone = LogitsInChunks(*runner_, 7, sequences[i].ids, [](int64_t) { return 100; });
  }
  // Every step takes a different number of rows of each: prompts, single tokens and rests of prompts in one batch.
  for (int64_t step_idx = 0;; ++step_idx) {
    runner_->step().Clear();
    std::vector<std::pair<size_t, int64_t>> rows_of;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Running& sequence = sequences[i];
      const int64_t left = static_cast<int64_t>(sequence.ids.size()) - sequence.done;
      const int64_t rows = std::min<int64_t>(
          left, (step_idx + static_cast<int64_t>(i)) % 3 == 0 ? 1 : 1 + (step_idx * 7 + static_cast<int64_t>(i) * 5) % 29);
      if (rows == 0) continue;
      runner_->step().AddSegment(static_cast<int32_t>(i), sequence.done, sequence.ids.data() + sequence.done, static_cast<int32_t>(rows),
                                 static_cast<int32_t>(rows));
      rows_of.push_back({i, rows});
    }
    if (rows_of.empty()) break;
    runner_->Replay();
    int64_t logit_row = 0;
    for (const auto& [i, rows] : rows_of) {
      ExpectRows(sequences[i].alone, sequences[i].done, vocab_, runner_->logits().Rows(logit_row, rows), "sequence " + std::to_string(i));
      sequences[i].done += rows;
      logit_row += rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BitsTest,
                         ::testing::ValuesIn(testing::kSanitized ? std::vector<const char*>{"v4_tiny", "v41_tiny"}
                                                                 : std::vector<const char*>{"v4_tiny", "v41_tiny", "tiny"}));

// The encoder shortcut leaves out rows that nobody reads: logits, saved state and what is decoded afterwards have the bits of the whole
// pass.
constexpr int64_t kShortcutContext = 400;

class ShortcutTest : public ::testing::TestWithParam<std::tuple<const char*, Numerics>> {
 protected:
  void SetUp() override {
    const std::string name = std::get<0>(GetParam());
    model_ = testing::OpenModel(name == "tiny" ? testing::TinyDir() : testing::GoldenDir(name));
    RunnerOptions options;
    options.numerics = std::get<1>(GetParam());
    options.num_workers = 2;
    options.max_seqs = 3;
    options.max_context = kShortcutContext;
    options.prefill_rows = 64;
    runner_ = std::make_unique<StepRunner>(*model_, options);
    for (int64_t i = 0; i < kShortcutContext; ++i)
      ids_.push_back(
          static_cast<int32_t>(UniformDouble(3, 5, static_cast<uint64_t>(i)) * static_cast<double>(model_->config().vocab_size)));
  }

  // Processes tokens [first, end) in chunks. With a boundary rows are left out; what they would have computed is NaN before and stays so.
  std::vector<float> Prefill(int32_t slot, int64_t first, int64_t end, int32_t chunk_rows, bool shortcut) {
    for (; first < end; first += chunk_rows) {
      const int32_t rows = static_cast<int32_t>(std::min<int64_t>(chunk_rows, end - first));
      runner_->step().Clear();
      runner_->step().AddSegment(slot, first, ids_.data() + first, rows, first + rows == end ? 1 : 0);
      if (shortcut) SetDepths(model_->config(), {end}, runner_->step());
      std::memset(runner_->plans().activations().base(), 0xff, runner_->plans().activations().used_bytes());
      runner_->Replay();
    }
    return LastLogits();
  }
  std::vector<float> LastLogits() const {
    const View<const float> logits = runner_->logits();
    return {logits.Row(0), logits.Row(0) + logits.cols};
  }
  void PoisonWindows(int32_t slot) {
    for (const CacheLayout& layout : runner_->cache().layouts()) {
      if (layout.kind != CacheKind::kWindow) continue;
      const RowStore store = runner_->cache().Store(layout.layer_idx, layout.kind);
      // Codes only: the bytes that pad a row are nobody's and are saved as they are.
      for (int64_t row = 0; row < store.rows_per_slot; ++row) std::memset(store.Row(slot, row), 0xff, 32);
    }
  }

  void ExpectEqualState(const StateSnapshot& state, const StateSnapshot& expected) const {
    const auto expect = [&](const std::vector<uint8_t>& bytes, const std::vector<uint8_t>& others, bool rings) {
      ASSERT_EQ(bytes.size(), others.size());
      const auto [at, other] = std::mismatch(bytes.begin(), bytes.end(), others.begin());
      if (at == bytes.end()) return;
      // Which layout the first different byte is in.
      int64_t left = at - bytes.begin();
      for (const CacheLayout& layout : runner_->cache().layouts()) {
        if (layout.is_ring() != rings) continue;
        const int64_t layout_bytes = SnapshotBytes({layout}, {expected.num_tokens});
        ASSERT_GE(left, layout_bytes) << "layer " << layout.layer_idx << ", " << CacheKindName(layout.kind) << ", row "
                                      << left / layout.row_bytes << ", byte " << left % layout.row_bytes << " of " << layout.row_bytes;
        left -= layout_bytes;
      }
    };
    expect(state.grown, expected.grown, false);
    expect(state.rings, expected.rings, true);
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<StepRunner> runner_;
  std::vector<int32_t> ids_;
};

TEST_P(ShortcutTest, LogitsStateAndDecodeHaveTheBitsOfTheWholePass) {
  const std::vector<int64_t> ends =
      testing::kSanitized ? std::vector<int64_t>{200} : std::vector<int64_t>{1, 2, 31, 33, 64, 94, 95, 127, 128, 129, 200, 311};
  for (const int64_t end : ends) {
    const std::vector<float> whole = Prefill(0, 0, end, 64, false);
    const StateSnapshot expected = SnapshotState(runner_->cache(), 0, {end});
    std::vector<std::vector<float>> decoded;
    for (int64_t position = end; position < end + 40; ++position) decoded.push_back(Prefill(0, position, position + 1, 1, false));
    for (const int32_t chunk_rows : {64, 17}) {
      SCOPED_TRACE(::testing::Message() << "prompt of " << end << " in chunks of " << chunk_rows);
      runner_->cache().Release(1);
      PoisonWindows(1);
      EXPECT_EQ(testing::FirstDifference(whole, Prefill(1, 0, end, chunk_rows, true)), -1);
      ExpectEqualState(SnapshotState(runner_->cache(), 1, {end}), expected);
      for (int64_t position = end; position < end + 40; ++position)
        ASSERT_EQ(testing::FirstDifference(decoded[static_cast<size_t>(position - end)], Prefill(1, position, position + 1, 1, false)), -1)
            << "decode at " << position;
    }
  }
}

// A prompt whose state is saved on the way: rows before every boundary are complete, those in between are not, and the rest of the prompt
// goes on from the saved state in another slot.
TEST_P(ShortcutTest, BoundariesOnTheWay) {
  const int64_t end = 320;
  const std::vector<float> whole = Prefill(0, 0, end, 64, false);
  PoisonWindows(1);
  Prefill(1, 0, 128, 64, true);
  Prefill(1, 128, 256, 50, true);
  const StateSnapshot saved = SnapshotState(runner_->cache(), 1, {256});
  EXPECT_EQ(testing::FirstDifference(whole, Prefill(1, 256, end, 64, true)), -1);
  PoisonWindows(2);
  RestoreState(runner_->cache(), 2, saved);
  EXPECT_EQ(testing::FirstDifference(whole, Prefill(2, 256, end, 23, true)), -1);
}

TEST_P(ShortcutTest, DecodingNeighboursPassEveryLayer) {
  const std::vector<float> alone = Prefill(0, 0, 100, 64, false);
  runner_->cache().Release(0);
  Prefill(0, 0, 99, 64, false);
  runner_->step().Clear();
  runner_->step().AddSegment(0, 99, ids_.data() + 99, 1, 1);
  runner_->step().AddSegment(1, 0, ids_.data(), 63, 0);
  SetDepths(model_->config(), {300}, runner_->step());
  runner_->Replay();
  EXPECT_EQ(testing::FirstDifference(alone, LastLogits()), -1);
}

INSTANTIATE_TEST_SUITE_P(Models, ShortcutTest,
                         ::testing::Combine(::testing::Values("v4_tiny", "v41_tiny", "tiny"),
                                            ::testing::ValuesIn(testing::kSanitized
                                                                    ? std::vector<Numerics>{Numerics::kBf16}
                                                                    : std::vector<Numerics>{Numerics::kBf16, Numerics::kReference})));

TEST(StepRunnerTest, RefusesContextBeyondTheModel) {
  const std::unique_ptr<Model> model = testing::OpenModel(testing::TinyDir());
  RunnerOptions options;
  options.max_context = model->config().max_position_embeddings + 1;
  EXPECT_THROW(StepRunner(*model, options), Error);
}

}  // namespace
}  // namespace tessera
