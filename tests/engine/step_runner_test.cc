// Equality of bits: how a sequence is cut, batched, bucketed, threaded, padded or resumed must not change one bit of its logits
// (docs/numerics.md). On texts long enough that HCA entries complete, rings wrap and candidates bite; on small models, and on random ones
// of the released widths, which the end-to-end scripts synth_widths_* run.
#include "engine/step_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <ostream>
#include <tuple>

#include "core/check.h"
#include "core/random.h"
#include "model/encoder_shortcut.h"
#include "model/sequence_state.h"
#include "support/golden_model.h"
#include "support/sanitized.h"
#include "support/synth_model.h"

namespace tessera {
namespace {

using testing::FirstDifference;
using testing::LogitsInChunks;

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
  options.max_context = 700;
  options.prefill_rows = prefill_rows;
  return std::make_unique<StepRunner>(model, options);
}

// What a row of floats is compared in: the rows of `part` against those of `whole` from `first` on.
void ExpectRows(const std::vector<float>& whole, int64_t first, int64_t cols, View<const float> part, const std::string& what) {
  for (int64_t row = 0; row < part.rows; ++row)
    ASSERT_EQ(std::memcmp(whole.data() + (first + row) * cols, part.Row(row), static_cast<size_t>(cols) * sizeof(float)), 0)
        << what << ": position " << first + row;
}

// A model to run the equalities on: a folder of the repository, or a random checkpoint.
struct BitsCase {
  const char* name;
  std::optional<SynthShape> synth;
  int64_t num_tokens = 312;
  int stride = testing::kSanitized ? 23 : 1;  // one of so many like cases is run
};
void PrintTo(const BitsCase& bits_case, std::ostream* stream) { *stream << bits_case.name; }

class BitsTest : public ::testing::TestWithParam<BitsCase> {
 protected:
  // A model, and what its sequence gives when nothing is cut: made once for all tests of a case.
  struct Opened {
    std::optional<testing::SynthModel> synth;
    std::unique_ptr<Model> model;
    std::unique_ptr<StepRunner> runner;
    std::vector<int32_t> ids;
    std::vector<float> whole;  // logits of every position, computed in one chunk
  };

  void SetUp() override {
    if (testing::kSanitized && GetParam().synth) GTEST_SKIP() << "models of real widths take hours under a sanitizer";
    std::unique_ptr<Opened>& opened = opened_[GetParam().name];
    if (opened == nullptr) {
      opened = std::make_unique<Opened>();
      const std::string name = GetParam().name;
      if (GetParam().synth) opened->synth.emplace(*GetParam().synth);
      opened->model = testing::OpenModel(opened->synth    ? opened->synth->path()
                                         : name == "tiny" ? testing::TinyDir()
                                                          : testing::GoldenDir(name));
      opened->ids = RandomIds(0, GetParam().num_tokens, opened->model->config().vocab_size);
      opened->runner = Runner(*opened->model, Numerics::kBf16, 2, 1024, 8);
      opened->whole = LogitsInChunks(*opened->runner, 0, opened->ids, [](int64_t) { return 1024; });
    }
    model_ = opened->model.get();
    runner_ = opened->runner.get();
    ids_ = opened->ids;
    whole_ = opened->whole;
    num_tokens_ = GetParam().num_tokens;
    few_ = GetParam().stride > 1;
    short_tokens_ = std::min(num_tokens_, GetParam().stride > 23 ? int64_t{33} : GetParam().synth ? int64_t{150} : num_tokens_);
    num_singles_ = GetParam().stride > 13 ? 16 : short_tokens_;
    vocab_ = model_->config().vocab_size;
  }
  static void TearDownTestSuite() { opened_.clear(); }

  View<const float> Step(StepRunner& runner, int32_t slot, int64_t first, int64_t rows) {
    runner.step().Clear();
    runner.step().AddSegment(slot, first, ids_.data() + first, static_cast<int32_t>(rows), static_cast<int32_t>(rows));
    runner.Replay();
    return runner.logits();
  }
  // The sequence, or where a row takes a tenth of a second its beginning, cut into chunks of so many rows.
  void ExpectSameInChunks(StepRunner& runner, int32_t slot, int64_t num_tokens, int64_t chunk_rows, const std::string& what) {
    const std::vector<int32_t> ids(ids_.begin(), ids_.begin() + std::min(num_tokens, num_tokens_));
    const std::vector<float> expected(whole_.begin(), whole_.begin() + static_cast<int64_t>(ids.size()) * vocab_);
    EXPECT_EQ(FirstDifference(expected, LogitsInChunks(runner, slot, ids, [=](int64_t) { return chunk_rows; })), -1)
        << what << ", " << ids.size() << " tokens in chunks of " << chunk_rows;
  }
  // Positions around which prompts end: every small one, around one HCA entry, around two.
  std::vector<int64_t> PromptEnds() const {
    std::vector<int64_t> ends;
    for (int64_t p = 1; p <= 80; ++p) ends.push_back(p);
    for (int64_t p = 120; p <= 136; ++p) ends.push_back(p);
    for (int64_t p = 250; p <= 262; ++p) ends.push_back(p);
    std::erase_if(ends, [&](int64_t end) { return end >= num_tokens_; });
    std::vector<int64_t> spread;
    for (size_t i = 0; i < ends.size(); i += static_cast<size_t>(GetParam().stride)) spread.push_back(ends[i]);
    return spread;
  }

  Model* model_ = nullptr;
  StepRunner* runner_ = nullptr;
  std::vector<int32_t> ids_;
  std::vector<float> whole_;
  int64_t num_tokens_ = 0;
  int64_t short_tokens_ = 0;  // where the length says little
  int64_t num_singles_ = 0;   // where each token takes a step
  bool few_ = false;
  int64_t vocab_ = 0;

 private:
  static inline std::map<std::string, std::unique_ptr<Opened>> opened_;
};

TEST_P(BitsTest, ChunkSize) {
  ExpectSameInChunks(*runner_, 1, num_tokens_, 64, "one prefill bucket");
  ExpectSameInChunks(*runner_, 1, short_tokens_, 7, "one prefill bucket");
  ExpectSameInChunks(*runner_, 1, num_singles_, 1, "one prefill bucket");
  for (const int64_t chunk : few_ ? std::vector<int64_t>{} : std::vector<int64_t>{2, 3, 5, 17})
    ExpectSameInChunks(*runner_, 1, num_tokens_, chunk, "one prefill bucket");
}

TEST_P(BitsTest, ChunkSizeInEveryNumericsMode) {
  for (const Numerics numerics : {Numerics::kReference, Numerics::kFp32}) {
    const std::unique_ptr<StepRunner> runner = Runner(*model_, numerics, 2, 1024);
    const std::vector<int32_t> ids(ids_.begin(), ids_.begin() + short_tokens_);
    const std::vector<float> whole = LogitsInChunks(*runner, 0, ids, [](int64_t) { return 1024; });
    for (const int64_t chunk : few_ ? std::vector<int64_t>{17} : std::vector<int64_t>{1, 5, 64})
      EXPECT_EQ(FirstDifference(whole, LogitsInChunks(*runner, 1, ids, [=](int64_t) { return chunk; })), -1)
          << "chunks of " << chunk << ", numerics " << static_cast<int>(numerics);
  }
}

TEST_P(BitsTest, WorkerCount) {
  // The sequence itself ran on two. One worker is slow under a sanitizer, more workers than cores with a real model.
  std::vector<int> worker_counts = {1, 3};
  if (few_) worker_counts = {GetParam().synth ? 1 : 3};
  for (const int workers : worker_counts) {
    const std::unique_ptr<StepRunner> runner = Runner(*model_, Numerics::kBf16, workers, 64);
    ExpectSameInChunks(*runner, 0, short_tokens_, 64, std::to_string(workers) + " workers");
    ExpectSameInChunks(*runner, 1, few_ ? 8 : 40, 1, std::to_string(workers) + " workers");
  }
}

TEST_P(BitsTest, DecodeAfterPromptsOfEveryLength) {
  for (const int64_t end : PromptEnds()) {
    ExpectRows(whole_, 0, vocab_, Step(*runner_, 1, 0, end), "prompt of " + std::to_string(end));
    for (int64_t position = end; position < std::min(end + (few_ ? 8 : 12), num_tokens_); ++position)
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
    const int64_t rows = std::min<int64_t>(9, num_tokens_ - end);
    ExpectRows(whole_, end, vocab_, Step(*runner_, 2, end, rows), "chunk after a snapshot at " + std::to_string(end));
  }
}

TEST_P(BitsTest, SevenSequencesTogether) {
  struct Running {
    std::vector<int32_t> ids;
    std::vector<float> alone;
    int64_t done = 0;
  };
  std::vector<Running> sequences(GetParam().stride > 23 ? 2 : 7);
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].ids = RandomIds(i + 1, std::min<int64_t>(140, short_tokens_) + 23 * static_cast<int64_t>(i), vocab_);
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

// With the default options, on the released widths too (DISABLED_Widths).
TEST_P(BitsTest, EveryPlanBuildsWithinASecond) {
  StepRunner runner(*model_, RunnerOptions{.num_workers = 2});
  const std::vector<int32_t>& buckets = runner.plans().buckets();
  ASSERT_GE(buckets.back(), 512);
  for (size_t i = 0; i < buckets.size(); ++i) EXPECT_LT(runner.plans().build_seconds(static_cast<int>(i)), 1.0) << buckets[i] << " rows";
}

// Bytes that are NaN as bf16 and as fp32.
void FillWithNan(Arena& arena) { std::memset(arena.base(), 0xff, arena.capacity_bytes()); }

TEST_P(BitsTest, BucketAndPaddingRowsThatRun) {
  const std::unique_ptr<StepRunner> runner = Runner(*model_, Numerics::kBf16, 2, 64, 64);
  const std::vector<int32_t>& buckets = runner->plans().buckets();
  for (const int bucket_rows : {8, 64}) {
    ASSERT_NE(std::find(buckets.begin(), buckets.end(), bucket_rows), buckets.end());
    const int bucket_idx = static_cast<int>(std::find(buckets.begin(), buckets.end(), bucket_rows) - buckets.begin());
    for (const bool run_padding : {false, true}) {
      for (int64_t first = 0; first < (GetParam().stride > 23 ? 10 : few_ ? 40 : 200); first += 5) {
        runner->step().Clear();
        runner->step().AddSegment(0, first, ids_.data() + first, 5, 5);
        FillWithNan(runner->plans().activations());
        runner->ReplayInBucket(bucket_idx, run_padding);
        ExpectRows(whole_, first, vocab_, runner->logits(), "bucket of " + std::to_string(bucket_rows));
      }
      runner->cache().Release(0);
    }
  }
}

std::vector<BitsCase> SmallModels() {
  std::vector<BitsCase> models = {{.name = "v4_tiny"}, {.name = "v41_tiny"}, {.name = "tiny"}};
  if (testing::kSanitized) models.pop_back();
  return models;
}
INSTANTIATE_TEST_SUITE_P(Models, BitsTest, ::testing::ValuesIn(SmallModels()));

// The released widths. Their tests are named by tests/end_to_end/synth_widths_slow.sh and _long.sh: gigabytes are written and read
// through for every token. Four layers of V4-Flash have each of its kinds, eight are the fewest of V4.1; both rings wrap after 128 tokens.
INSTANTIATE_TEST_SUITE_P(DISABLED_Widths, BitsTest,
                         ::testing::Values(BitsCase{.name = "v4-flash",
                                                    .synth = SynthShape{.like = "v4-flash", .layers = 4, .experts = 8, .vocab = 1024},
                                                    .num_tokens = 133,
                                                    .stride = 81},
                                           BitsCase{.name = "v4.1-flash",
                                                    .synth = SynthShape{.like = "v4.1-flash", .layers = 8, .experts = 8, .vocab = 1024,
                                                                        .engram_rows = 20000},
                                                    .num_tokens = 133,
                                                    .stride = 81}));
// More cases, and texts beyond the 512 entries that an indexer of V4.1 selects.
INSTANTIATE_TEST_SUITE_P(DISABLED_WidthsInFull, BitsTest,
                         ::testing::Values(BitsCase{.name = "v4-flash in full",
                                                    .synth = SynthShape{.like = "v4-flash", .layers = 7, .experts = 8, .vocab = 1024},
                                                    .num_tokens = 300,
                                                    .stride = 13},
                                           BitsCase{.name = "v4.1-flash in full",
                                                    .synth = SynthShape{.like = "v4.1-flash", .layers = 8, .experts = 8, .vocab = 1024,
                                                                        .engram_rows = 20000},
                                                    .num_tokens = 560,
                                                    .stride = 13}));

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

// One sequence may have 1,048,576 tokens. What lies before its last ones is zero here: rows, entries and index keys are read all the same.
TEST(StepRunnerTest, TheLastTokensOfAMillion) {
  for (const char* name : {"v4_tiny", "v41_tiny"}) {
    const std::unique_ptr<Model> model = testing::OpenModel(testing::GoldenDir(name));
    RunnerOptions options;
    options.num_workers = 2;
    options.max_seqs = 2;
    options.max_context = 1048576;
    options.prefill_rows = 16;
    StepRunner runner(*model, options);
    const std::vector<int32_t> ids = RandomIds(3, 12, model->config().vocab_size);
    std::vector<float> logits[2];
    for (int32_t slot = 0; slot < 2; ++slot) {
      const int32_t rows = slot == 0 ? 12 : 4;
      for (int32_t done = 0; done < 12; done += rows) {
        runner.step().Clear();
        runner.step().AddSegment(slot, options.max_context - 12 + done, ids.data() + done, rows, rows);
        runner.Replay();
        for (int64_t row = 0; row < rows; ++row)
          logits[slot].insert(logits[slot].end(), runner.logits().Row(row), runner.logits().Row(row) + runner.logits().cols);
      }
    }
    EXPECT_EQ(FirstDifference(logits[0], logits[1]), -1) << name;
    EXPECT_TRUE(std::all_of(logits[0].begin(), logits[0].end(), [](float logit) { return std::isfinite(logit); })) << name;
    const RowStore entries = runner.cache().Store(2, CacheKind::kCompressed);
    ASSERT_TRUE(entries.present()) << name;
    const int64_t last = options.max_context / model->config().compress_ratios[2] - 1;
    const std::vector<uint8_t> bytes(entries.Row(1, last), entries.Row(1, last) + entries.row_bytes);
    EXPECT_NE(bytes, std::vector<uint8_t>(bytes.size())) << name;
  }
}

TEST(StepRunnerTest, RefusesContextBeyondTheModel) {
  const std::unique_ptr<Model> model = testing::OpenModel(testing::TinyDir());
  RunnerOptions options;
  options.max_context = model->config().max_position_embeddings + 1;
  EXPECT_THROW(StepRunner(*model, options), Error);
}

}  // namespace
}  // namespace tessera
