// The contract of plans, letter by letter (docs/plans.md): what a replay may do, what it may depend on, and what capture leaves behind.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/random.h"
#include "engine/sampler.h"
#include "support/allocation_counter.h"
#include "support/confined_child.h"
#include "support/golden_model.h"
#include "support/sanitized.h"

namespace tessera {
namespace {

using testing::FirstDifference;
using testing::LogitsInChunks;

constexpr int64_t kNumTokens = 200;
constexpr int32_t kSeqsMax = 8, kPrefillRows = 64;

RunnerOptions Options(int workers = 2) {
  RunnerOptions options;
  options.num_workers = workers;
  options.max_seqs = kSeqsMax;
  options.max_context = 400;
  options.prefill_rows = kPrefillRows;
  return options;
}

std::unique_ptr<Model> OpenNamed(const std::string& name) {
  return testing::OpenModel(name == "tiny" ? testing::TinyDir() : testing::GoldenDir(name));
}

std::vector<int32_t> RandomIds(int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kNumTokens; ++i)
    ids.push_back(static_cast<int32_t>(UniformDouble(11, 0, static_cast<uint64_t>(i)) * static_cast<double>(vocab_size)));
  return ids;
}

class PlanContractTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = OpenNamed(GetParam());
    ids_ = RandomIds(model_->config().vocab_size);
    runner_ = std::make_unique<StepRunner>(*model_, Options());
  }
  std::unique_ptr<StepRunner> NewRunner(RunnerOptions options = Options()) const { return std::make_unique<StepRunner>(*model_, options); }
  std::vector<int32_t> FirstIds(int64_t count) const { return {ids_.begin(), ids_.begin() + count}; }
  // Appends rows [first, first + rows) of the text in `slot`, all of which want logits.
  void AddRows(StepRunner& runner, int32_t slot, int64_t first, int32_t rows) const {
    runner.step().AddSegment(slot, first, ids_.data() + first, rows, rows);
  }
  std::vector<float> RunRows(StepRunner& runner, int32_t slot, int64_t first, int32_t rows) const {
    runner.step().Clear();
    AddRows(runner, slot, first, rows);
    runner.Replay();
    return Logits(runner);
  }
  static std::vector<float> Logits(const StepRunner& runner) {
    const View<const float> logits = runner.logits();
    return {logits.data, logits.data + logits.rows * logits.cols};
  }

  std::unique_ptr<Model> model_;
  std::vector<int32_t> ids_;
  std::unique_ptr<StepRunner> runner_;
};

TEST_P(PlanContractTest, A_ReplayAllocatesNothing) {
  if (!testing::CountsAllocations()) GTEST_SKIP() << "the sanitizer owns malloc in this build";
  int64_t before = testing::NumAllocations();
  const auto counted = std::make_unique<std::vector<int>>(1000);  // an allocation nobody can optimise away
  ASSERT_EQ(counted->size(), 1000u);
  ASSERT_GT(testing::NumAllocations(), before) << "the counter counts";
  Timing timing(16, 64);
  for (Timing* set : {static_cast<Timing*>(nullptr), &timing}) {
    runner_->SetTiming(set);
    before = testing::NumAllocations();
    for (const int32_t rows : {kPrefillRows, 1, 7}) {
      runner_->step().Clear();
      AddRows(*runner_, 0, 0, rows);
      runner_->Replay();
    }
    EXPECT_EQ(testing::NumAllocations(), before) << (set != nullptr ? "timed" : "");
  }
  EXPECT_EQ(timing.num_steps(), 3);
  EXPECT_TRUE(runner_->plans().activations().sealed());
}

// What happens to the logits after a replay does not allocate either.
TEST(SamplerAllocationTest, SamplingAllocatesNothing) {
  if (!testing::CountsAllocations()) GTEST_SKIP() << "the sanitizer owns malloc in this build";
  std::vector<float> logits;
  for (uint64_t i = 0; i < 5000; ++i) logits.push_back(static_cast<float>(9 * UniformDouble(2, 0, i)));
  const SamplingOptions options = {.temperature = 0.9F,
                                   .top_k = 30,
                                   .top_p = 0.9F,
                                   .min_p = 0.01F,
                                   .repetition_penalty = 1.2F,
                                   .presence_penalty = 1,
                                   .frequency_penalty = 1,
                                   .logit_bias = {{3, -100}, {4, 2}}};
  SamplerScratch scratch(5000);
  TokenCounts counts(std::vector<int32_t>{1, 2, 3, 900}, 40, 5000);
  const int64_t before = testing::NumAllocations();
  for (uint64_t position = 0; position < 40; ++position) {
    const std::optional<SampledToken> token = Sample(logits, counts, options, position, scratch);
    ASSERT_TRUE(token);
    counts.Add(token->token_id);
    ASSERT_EQ(TopLogProbabilities(logits, token->token_id, 20, scratch).num_top, 20);
  }
  EXPECT_EQ(testing::NumAllocations(), before);
}

// A plan of exactly the rows there are, built for them and run once by one worker, is what "eager" means here.
TEST_P(PlanContractTest, B_ReplayEqualsAPlanBuiltForTheRows) {
  for (const int32_t rows : {1, 2, 3, 5, 7, 8, 11, 33, 63}) {
    if (testing::kSanitized && rows != 11) continue;
    RunnerOptions options = Options(1);
    options.max_seqs = 1;
    options.prefill_rows = std::max(rows, 2);
    const std::unique_ptr<StepRunner> eager = NewRunner(options);
    ASSERT_EQ(eager->plans().buckets().back(), std::max(rows, 2));
    for (int64_t first = 0; first + rows <= 130; first += rows)
      ASSERT_EQ(FirstDifference(RunRows(*eager, 0, first, rows), RunRows(*runner_, 0, first, rows)), -1) << rows << " rows at " << first;
  }
}

// Padding rows start as NaN wherever they can be: in every activation and in the caches of their slot.
TEST_P(PlanContractTest, C_PaddingRowsNeverChangeRealOnes) {
  const std::vector<float> whole = LogitsInChunks(*runner_, 0, ids_, [](int64_t) { return kPrefillRows; });
  const std::vector<int32_t>& buckets = runner_->plans().buckets();
  const int64_t vocab = model_->config().vocab_size;
  for (const int bucket_rows : {8, 64}) {
    const int bucket_idx = static_cast<int>(std::find(buckets.begin(), buckets.end(), bucket_rows) - buckets.begin());
    for (const bool run_padding : {false, true}) {
      for (int64_t first = 0; first < (testing::kSanitized ? 40 : kNumTokens); first += 5) {
        Arena& activations = runner_->plans().activations();
        std::memset(activations.base(), 0xff, activations.capacity_bytes());
        for (const CacheLayout& layout : runner_->cache().layouts()) {
          if (layout.kind == CacheKind::kEngramHistory) continue;  // ids, which index the token map: no such thing as NaN
          const RowStore store = runner_->cache().Store(layout.layer_idx, layout.kind);
          std::memset(store.Slot(kSeqsMax), 0xff, static_cast<size_t>(store.rows_per_slot * store.row_bytes));
        }
        runner_->step().Clear();
        AddRows(*runner_, 1, first, 5);
        runner_->ReplayInBucket(bucket_idx, run_padding);
        const std::vector<float> expected(whole.begin() + first * vocab, whole.begin() + (first + 5) * vocab);
        ASSERT_EQ(FirstDifference(expected, Logits(*runner_)), -1) << "bucket of " << bucket_rows << ", position " << first;
      }
      runner_->cache().Release(1);
    }
  }
}

TEST_P(PlanContractTest, D_BucketIsTheSmallestThatHoldsTheRows) {
  const std::vector<int32_t>& buckets = runner_->plans().buckets();
  ASSERT_EQ(buckets, (std::vector<int32_t>{1, 2, 4, 8, 64}));
  for (int32_t rows = 1; rows <= kPrefillRows; ++rows) {
    runner_->step().Clear();
    AddRows(*runner_, 0, 0, rows);
    runner_->ChooseBucket();
    const int bucket_idx = runner_->step().bucket_idx;
    EXPECT_GE(buckets[static_cast<size_t>(bucket_idx)], rows);
    if (bucket_idx > 0) EXPECT_LT(buckets[static_cast<size_t>(bucket_idx - 1)], rows);
  }
  RunnerOptions options = Options(1);  // no threads: what follows forks
  runner_ = NewRunner(options);
  EXPECT_DEATH(runner_->plans().BucketFor(65), "65 rows, the largest bucket has 64");
  EXPECT_DEATH(AddRows(*runner_, 0, 0, 65), "0 rows in the step, 65 more, 64 at most");
}

TEST_P(PlanContractTest, E_PlansReplayEachOtherUndisturbed) {
  const std::vector<float> first = RunRows(*runner_, 0, 0, 40);
  RunRows(*runner_, 1, 0, 1);
  RunRows(*runner_, 1, 1, 7);
  RunRows(*runner_, 1, 0, 64);
  EXPECT_EQ(FirstDifference(first, RunRows(*runner_, 0, 0, 40)), -1);
}

// Two runners stand for two ranks: one decides, the other is sent the step, the bucket with it, and runs what it says. The bucket may be
// larger than the smallest, as when another rank needed more.
TEST_P(PlanContractTest, F_EveryRankRunsTheBucketOfTheStep) {
  std::unique_ptr<StepRunner> follower = NewRunner();
  const auto send = [](const Step& from, Step& to) {
    to.number = from.number;
    to.num_rows = from.num_rows;
    to.num_segments = from.num_segments;
    to.num_logit_rows = from.num_logit_rows;
    to.bucket_idx = from.bucket_idx;
    std::copy_n(from.token_id, from.num_rows, to.token_id);
    std::copy_n(from.position, from.num_rows, to.position);
    std::copy_n(from.slot, from.num_rows, to.slot);
    std::copy_n(from.valid, from.num_rows, to.valid);
    std::copy_n(from.depth, from.num_rows, to.depth);
    std::copy_n(from.logit_row, from.num_logit_rows, to.logit_row);
    std::copy_n(from.segments, from.num_segments, to.segments);
  };
  Timing timing(16, 64);
  follower->SetTiming(&timing);
  int64_t first = 0;
  int32_t step_idx = 0;
  for (const int32_t rows : {20, 1, 3, 8, 1}) {
    Step& step = runner_->step();
    step.Clear();
    AddRows(*runner_, 2, first, rows);
    runner_->ChooseBucket();
    if (step_idx == 2) step.bucket_idx = 3;
    send(step, follower->step());
    runner_->RunStep();
    follower->RunStep();
    EXPECT_EQ(timing.step(step_idx++).bucket_rows, runner_->plans().buckets()[static_cast<size_t>(step.bucket_idx)]);
    EXPECT_EQ(FirstDifference(Logits(*runner_), Logits(*follower)), -1) << rows << " rows at " << first;
    first += rows;
  }
  EXPECT_EQ(timing.step(2).bucket_rows, 8) << "three rows in the bucket that was agreed on";
  follower.reset();
  runner_ = NewRunner(Options(1));  // no threads: what follows forks
  AddRows(*runner_, 2, 0, 5);
  runner_->ChooseBucket();
  runner_->step().bucket_idx = 2;
  EXPECT_DEATH(runner_->RunStep(), "bucket of 4 rows for 5");
}

TEST_P(PlanContractTest, G_ChunkedPrefillEqualsOneShot) {
  RunnerOptions options = Options();
  options.prefill_rows = kNumTokens;
  const std::unique_ptr<StepRunner> one_shot = NewRunner(options);
  const std::vector<float> whole = LogitsInChunks(*one_shot, 0, ids_, [](int64_t) { return kNumTokens; });
  for (const int32_t rows : {4, 16, 64}) {
    if (testing::kSanitized && rows != 16) continue;
    options.prefill_rows = rows;
    options.max_seqs = 2;
    EXPECT_EQ(FirstDifference(whole, LogitsInChunks(*NewRunner(options), 0, ids_, [=](int64_t) { return rows; })), -1) << rows << " rows";
  }
}

TEST_P(PlanContractTest, H_CaptureAndDestroyMayBeRepeated) {
  const std::vector<float> expected = LogitsInChunks(*runner_, 0, FirstIds(60), [](int64_t) { return 12; });
  const int64_t vocab = model_->config().vocab_size;
  // The sequence keeps its state while the plans come and go.
  for (int64_t first = 0; first < 60; first += 12) {
    if (first == 12) runner_->Capture();
    if (first == 24) {
      runner_->Destroy();
      runner_->Destroy();
      runner_->Capture();
      runner_->Capture();
    }
    const std::vector<float> logits = RunRows(*runner_, 1, first, 12);
    EXPECT_EQ(FirstDifference({expected.begin() + first * vocab, expected.begin() + (first + 12) * vocab}, logits), -1) << first;
  }
  runner_ = NewRunner(Options(1));  // no threads: what follows forks
  RunRows(*runner_, 0, 0, 3);
  runner_->Destroy();
  EXPECT_DEATH(runner_->Replay(), "destroyed or never captured");
  EXPECT_DEATH(runner_->logits(), "its plans were destroyed");
}

TEST_P(PlanContractTest, I_CaptureWritesThePaddingSlotOnly) {
  // Bytes that no kernel writes by chance, in every row of every slot.
  KvCache& cache = runner_->cache();
  std::vector<std::vector<uint8_t>> before;
  for (const CacheLayout& layout : cache.layouts()) {
    const RowStore store = cache.Store(layout.layer_idx, layout.kind);
    const auto range_bytes = static_cast<size_t>(store.rows_per_slot * store.row_bytes);
    for (int32_t slot = 0; slot < kSeqsMax; ++slot) {
      for (size_t i = 0; i < range_bytes; ++i) store.Slot(slot)[i] = static_cast<uint8_t>(i * 131 + i / 251 + 7);
      before.emplace_back(store.Slot(slot), store.Slot(slot) + range_bytes);
    }
    std::memset(store.Slot(kSeqsMax), 0, range_bytes);
  }
  runner_->Capture();
  size_t range_idx = 0;
  bool padding_written = false;
  for (const CacheLayout& layout : cache.layouts()) {
    const RowStore store = cache.Store(layout.layer_idx, layout.kind);
    for (int32_t slot = 0; slot < kSeqsMax; ++slot) {
      const std::vector<uint8_t>& expected = before[range_idx++];
      EXPECT_EQ(std::memcmp(store.Slot(slot), expected.data(), expected.size()), 0) << "layer " << layout.layer_idx << " slot " << slot;
    }
    const uint8_t* padding = store.Slot(kSeqsMax);
    padding_written |= std::any_of(padding, padding + store.rows_per_slot * store.row_bytes, [](uint8_t byte) { return byte != 0; });
  }
  EXPECT_TRUE(padding_written) << "the warm run ran";
  EXPECT_EQ(runner_->step().num_rows, 0);
  EXPECT_EQ(runner_->step().num_segments, 0);
}

TEST_P(PlanContractTest, J_ASkippedStepIsFound) {
  const std::unique_ptr<StepRunner> follower = NewRunner();
  for (int64_t number = 1; number <= 3; ++number) {
    RunRows(*runner_, 0, number, 1);
    EXPECT_EQ(runner_->step().number, number);
  }
  AddRows(*follower, 0, 0, 1);
  follower->ChooseBucket();
  follower->step().number = 2;
  try {
    follower->RunStep();
    FAIL() << "step 2 ran first";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "step 2 was to follow step 0: this rank is out of step");
  }
  follower->step().number = 1;
  follower->RunStep();
  EXPECT_THROW(follower->RunStep(), Error) << "the same step twice";
  follower->step().number = 2;
  follower->RunStep();
}

// Weights were touched by a run of the same tokens, the slot's pages are made resident between steps: nothing is left for a replay to
// fault.
TEST_P(PlanContractTest, ReplayFaultsNoPageAndCallsNothingButFutexes) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer faults pages and makes system calls of its own";
  constexpr int32_t kNumDecodes = 20;
  enum Counter { kControlFaults, kRunFaults };
  runner_.reset();  // no threads in the process that forks
  const testing::ChildVerdict verdict = testing::RunInChild([this](testing::ChildVerdict& child) {
    const std::unique_ptr<Model> model = OpenNamed(GetParam());
    StepRunner runner(*model, Options());
    const auto run = [&] {
      for (int64_t first = 0; first < 100; first += first < 80 ? 40 : 1) {
        runner.step().Clear();
        AddRows(runner, 3, first, first < 80 ? 40 : 1);
        runner.Replay();
      }
      runner.step().Clear();
      for (int32_t slot = 3; slot < 7; ++slot) AddRows(runner, slot, slot == 3 ? 100 : 0, slot == 3 ? 1 : 9);
      runner.Replay();
    };
    run();
    int64_t before = testing::NumPageFaults();
    runner.cache().Release(3);
    run();
    child.counters[kControlFaults] = testing::NumPageFaults() - before;
    runner.cache().Release(3);
    runner.cache().Populate(3, 101);
    before = testing::NumPageFaults();
    run();
    child.counters[kRunFaults] = testing::NumPageFaults() - before;
    child.refused = !testing::AllowFutexesOnly();
    run();
    testing::FinishChild();
  });
  ASSERT_STREQ(verdict.error, "");
  EXPECT_EQ(verdict.forbidden_call, -1) << "a replay made this system call";
  EXPECT_TRUE(verdict.finished);
  EXPECT_GT(verdict.counters[kControlFaults], 0) << "pages that were given back and not populated are faulted and counted";
  EXPECT_EQ(verdict.counters[kRunFaults], 0) << "page faults in 2 prompt chunks, " << kNumDecodes << " decode steps and a mixed batch";
  if (verdict.refused) GTEST_SKIP() << "this host grants no seccomp filter: system calls were not watched, page faults were";
}

INSTANTIATE_TEST_SUITE_P(Models, PlanContractTest,
                         ::testing::ValuesIn(testing::kSanitized ? std::vector<const char*>{"v4_tiny", "v41_tiny"}
                                                                 : std::vector<const char*>{"v4_tiny", "v41_tiny", "tiny"}));

TEST(PlanContractLimitsTest, TheFilterEndsAndNamesAnyOtherCall) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer makes system calls of its own";
  const testing::ChildVerdict verdict = testing::RunInChild([](testing::ChildVerdict& child) {
    child.refused = !testing::AllowFutexesOnly();
    if (!child.refused) getppid();
  });
  if (verdict.refused) GTEST_SKIP() << "this host grants no seccomp filter";
  EXPECT_FALSE(verdict.finished);
  EXPECT_EQ(verdict.forbidden_call, SYS_getppid);
}

TEST(PlanContractLimitsTest, OpensUnderALimitOfAddressSpace) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer reserves terabytes of address space";
  const testing::ChildVerdict verdict = testing::RunInChild([](testing::ChildVerdict& child) {
    const rlimit limit = {size_t{4} << 30, size_t{4} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) Fail("cannot limit the address space");
    const std::unique_ptr<Model> model = OpenNamed("tiny");
    RunnerOptions options;
    options.num_workers = 2;
    options.record_layers = true;
    StepRunner runner(*model, options);
    const std::vector<int32_t> ids(100, 3);
    LogitsInChunks(runner, 0, ids, [](int64_t) { return 50; });
    child.counters[0] = runner.step().number;
  });
  ASSERT_STREQ(verdict.error, "");
  ASSERT_TRUE(verdict.finished);
  EXPECT_EQ(verdict.counters[0], 2);
}

TEST(PlanContractLimitsTest, APlanBuildsWithinASecond) {
  for (const char* name : {"v4_tiny", "v41_tiny", "tiny"}) {
    const std::unique_ptr<Model> model = OpenNamed(name);
    StepRunner runner(*model, Options());
    const int largest = static_cast<int>(runner.plans().buckets().size()) - 1;
    EXPECT_LT(runner.plans().build_seconds(largest), 1.0) << name;
    EXPECT_GT(runner.plans().build_seconds(largest), 0.0) << name;
  }
}

}  // namespace
}  // namespace tessera
