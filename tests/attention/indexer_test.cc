#include "attention/indexer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "kernels/convert.h"
#include "kernels/index_score.h"
#include "kernels/matmul.h"
#include "reference/indexer_ref.h"
#include "support/kernel_inputs.h"
#include "support/op_inputs.h"
#include "support/sanitized.h"

namespace tessera {
namespace {

using testing::AlignedBuffer;
using testing::RandomValues;
using testing::RunOnWorkers;
using testing::StepRows;

constexpr int64_t kHeadDim = 32;
constexpr int kHeads = 3;
constexpr int32_t kSlots = 3;
constexpr int64_t kEntriesMax = 1500;
constexpr int kWorkersStep = testing::kSanitized ? 3 : 1;  // 1, 4 and 7 workers are enough where a test runs ten times slower

// A row of a step: a sequence's caches and how many entries its token sees.
struct RowSpec {
  int32_t slot;
  int64_t num_visible;
};

// Keys of every slot, queries and weights of every row, and the buffers that rows choose into.
class Problem {
 public:
  // Keys repeat after `num_distinct`, so that equal scores are many.
  Problem(IndexerShape shape, std::vector<RowSpec> specs, int64_t num_distinct = kEntriesMax, uint64_t seed = 1)
      : shape_(shape),
        specs_(std::move(specs)),
        cache_({{0, CacheKind::kIndexCodes, kEntriesMax, kHeadDim / 2, 0, 1}, {0, CacheKind::kIndexScales, kEntriesMax, 1, 0, 1}}, kSlots),
        rows_(static_cast<int32_t>(specs_.size())) {
    shape_.num_heads = kHeads;
    shape_.head_dim = kHeadDim;
    const RowStore codes = cache_.Store(0, CacheKind::kIndexCodes), scales = cache_.Store(0, CacheKind::kIndexScales);
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const std::vector<float> keys = RandomValues<float>(seed + static_cast<uint64_t>(slot), num_distinct * kHeadDim, -2, 2);
      for (int64_t entry = 0; entry < kEntriesMax; ++entry)
        QuantizeQ4(keys.data() + entry % num_distinct * kHeadDim, kHeadDim, 32, codes.Row(slot, entry), scales.Row(slot, entry));
    }
    // The token of position p sees (p + 1) / ratio entries.
    for (const RowSpec& spec : specs_) {
      EXPECT_TRUE(spec.num_visible > 0 || shape.ratio > 1);
      rows_.Add(spec.slot, std::max<int64_t>(0, spec.num_visible * shape.ratio - 1), 1);
    }
    NewQueries(seed + 100);
  }

  void NewQueries(uint64_t seed) {
    queries_ = RandomValues<bf16>(seed, num_rows() * kHeads * kHeadDim, -4, 4);
    weights_ = RandomValues<float>(seed + 1, num_rows() * kHeads, -0.5, 1);  // some are negative, as released ones
  }
  void SetWeights(float weight) { weights_.assign(weights_.size(), weight); }
  void SetRole(CandidateRole role) { shape_.role = role; }
  const IndexerShape& shape() const { return shape_; }
  int64_t num_rows() const { return static_cast<int64_t>(specs_.size()); }

  // Scores of all entries that `row` sees, in one call of the kernel.
  std::vector<float> Scores(int64_t row) const {
    const int64_t count = specs_[static_cast<size_t>(row)].num_visible;
    std::vector<float> scores(static_cast<size_t>(count));
    if (count == 0) return scores;
    const AlignedBuffer packed(PackedBytes<bf16>(Format::kE2M1, kHeads, kHeadDim));
    const AlignedBuffer scratch(IndexScoreScratchBytes(kHeads, count, kHeadDim));
    const bf16* queries = queries_.data() + row * kHeads * kHeadDim;
    PackActivations<bf16>(MakeView(queries, kHeads, kHeadDim), nullptr, kHeads, Format::kE2M1, packed.get());
    const int32_t slot = specs_[static_cast<size_t>(row)].slot;
    QuantView keys{cache_.Store(0, CacheKind::kIndexCodes).Slot(slot),
                   cache_.Store(0, CacheKind::kIndexScales).Slot(slot),
                   Format::kE2M1,
                   count,
                   kHeadDim,
                   kHeadDim / 2,
                   1,
                   1,
                   32};
    IndexScore({packed.get(), kHeads, weights_.data() + row * kHeads, keys, shape_.round_scores, scores.data(), scratch.get()});
    return scores;
  }

  // Runs both ops and compares every row with the twin. Restricted rows take the blocks published by the last run with kPublish.
  void Check(int num_workers) {
    SCOPED_TRACE(::testing::Message() << num_workers << " workers, " << num_rows() << " rows, role " << static_cast<int>(shape_.role));
    const int64_t lists = PartialListsMax(num_rows(), num_workers);
    entries_.assign(static_cast<size_t>(num_rows() * shape_.topk), -7);
    counts_.assign(static_cast<size_t>(num_rows()), -7);
    if (shape_.role != CandidateRole::kRestrict) {
      blocks_.assign(static_cast<size_t>(num_rows() * shape_.block_topk), -7);
      block_counts_.assign(static_cast<size_t>(num_rows()), -7);
    }
    std::vector<ScoredIndex> list_entries(static_cast<size_t>(lists * shape_.topk), {NAN, -7});
    std::vector<ScoredIndex> list_blocks(static_cast<size_t>(lists * shape_.block_topk), {NAN, -7});
    std::vector<int32_t> list_counts(static_cast<size_t>(lists), -7), list_block_counts(static_cast<size_t>(lists), -7);
    IndexerArguments arguments;
    arguments.shape = shape_;
    arguments.step = &rows_.step();
    arguments.rows = rows_.step().AllRows();
    arguments.queries = MakeView<const bf16>(queries_.data(), num_rows(), kHeads * kHeadDim);
    arguments.weights = MakeView<const float>(weights_.data(), num_rows(), kHeads);
    arguments.key_codes = cache_.Store(0, CacheKind::kIndexCodes);
    arguments.key_scales = cache_.Store(0, CacheKind::kIndexScales);
    arguments.selection = {entries_.data(), counts_.data(), shape_.topk};
    arguments.candidates = {blocks_.data(), block_counts_.data(), shape_.block_topk};
    arguments.lists = {list_entries.data(), list_counts.data(), list_blocks.data(), list_block_counts.data()};
    const int64_t scratch_bytes = IndexerScratchBytes(shape_);
    RunOnWorkers(num_workers, scratch_bytes, [&](const WorkerContext& worker) { ScoreEntries(arguments, worker); });
    RunOnWorkers(num_workers, scratch_bytes, [&](const WorkerContext& worker) { MergeSelection(arguments, worker); });
    for (int64_t row = 0; row < num_rows(); ++row) ExpectTwin(row);
  }

  std::vector<int32_t> Selected(int64_t row) const { return List(entries_, counts_, row, shape_.topk); }
  std::vector<int32_t> Blocks(int64_t row) const { return List(blocks_, block_counts_, row, shape_.block_topk); }

 private:
  void ExpectTwin(int64_t row) const {
    std::vector<float> scores = Scores(row);
    const int64_t count = static_cast<int64_t>(scores.size());
    if (shape_.role == CandidateRole::kPublish && count > 0) {
      const std::vector<int32_t> blocks = reference::CandidateBlocks(scores, shape_.block_size, shape_.block_topk);
      ASSERT_EQ(Blocks(row), blocks) << "row " << row << " of " << count << " entries";
      ASSERT_EQ(blocks.back(), (count - 1) / shape_.block_size);
    }
    if (shape_.role == CandidateRole::kRestrict) scores = reference::RestrictToBlocks(scores, Blocks(row), shape_.block_size);
    ASSERT_EQ(Selected(row), reference::KeptIndices(scores, shape_.topk)) << "row " << row << " of " << count << " entries";
  }
  static std::vector<int32_t> List(const std::vector<int32_t>& all, const std::vector<int32_t>& counts, int64_t row, int64_t width) {
    const int32_t count = counts[static_cast<size_t>(row)];
    EXPECT_TRUE(count >= 0 && count <= width) << count;
    const auto begin = all.begin() + row * width;
    return {begin, begin + std::clamp<int64_t>(count, 0, width)};
  }

  IndexerShape shape_;
  std::vector<RowSpec> specs_;
  KvCache cache_;
  StepRows rows_;
  std::vector<bf16> queries_;
  std::vector<float> weights_;
  std::vector<int32_t> entries_, counts_, blocks_, block_counts_;
};

IndexerShape Shape(int64_t topk, int64_t block_size = 8, int64_t block_topk = 0, int ratio = 1) {
  IndexerShape shape;
  shape.topk = topk;
  shape.block_size = block_size;
  shape.block_topk = block_topk;
  shape.ratio = ratio;
  return shape;
}

// Numbers of entries around every boundary: none, the limit of the selection, blocks, stretches.
std::vector<RowSpec> EveryLength(const IndexerShape& shape) {
  std::vector<RowSpec> specs;
  const int64_t stretch = shape.stretch();
  for (int64_t n = shape.ratio > 1 ? 0 : 1; n <= 3 * shape.topk && n <= 60; ++n) specs.push_back({static_cast<int32_t>(n % kSlots), n});
  for (const int64_t around : {shape.block_size * shape.block_topk, stretch, 2 * stretch, kEntriesMax - 2})
    for (int64_t n = around - 2; n <= around + 2; ++n)
      if (n > 60 && n <= kEntriesMax) specs.push_back({static_cast<int32_t>(n % kSlots), n});
  return specs;
}

TEST(IndexerTest, SelectionIsTheTwinsForEveryLengthAndNumberOfWorkers) {
  for (const IndexerShape& shape : {Shape(1), Shape(10), Shape(64, 33), Shape(10, 33, 0, 2), Shape(600)}) {
    Problem problem(shape, EveryLength(shape));
    for (int workers = 1; workers <= 7; workers += kWorkersStep) problem.Check(workers);
  }
}

TEST(IndexerTest, FewRowsAreDividedIntoPartsOfTheirStretches) {
  for (const int64_t num_rows : {1, 2, 3})
    for (const int64_t num_visible : {5, 263, 264, 265, 700, 1500}) {
      std::vector<RowSpec> specs;
      for (int64_t row = 0; row < num_rows; ++row) specs.push_back({static_cast<int32_t>(row), num_visible - row});
      Problem problem(Shape(12, 33, 4), specs);  // stretches of 264 entries
      for (int workers = 1; workers <= 7; workers += kWorkersStep) {
        problem.NewQueries(8);
        problem.SetRole(CandidateRole::kPublish);
        problem.Check(workers);
        problem.NewQueries(9);
        problem.SetRole(CandidateRole::kRestrict);
        problem.Check(workers);
      }
    }
}

TEST(IndexerTest, PublishedBlocksRestrictLaterQueries) {
  for (const IndexerShape& shape : {Shape(10, 8, 3), Shape(40, 8, 60), Shape(5, 33, 2), Shape(100, 8, 3), Shape(30, 8, 20, 2)}) {
    Problem problem(shape, EveryLength(shape));
    for (const int workers : {1, 3, 7}) {
      problem.NewQueries(200);
      problem.SetRole(CandidateRole::kPublish);
      problem.Check(workers);
      problem.NewQueries(300);
      problem.SetRole(CandidateRole::kRestrict);
      problem.Check(workers);
    }
  }
}

TEST(IndexerTest, EqualScoresGoToTheLowerIndexAcrossStretchesAndParts) {
  for (const int64_t num_distinct : {1, 2, 7}) {
    Problem problem(Shape(50, 33, 5), {{0, 1400}, {1, 900}, {2, 265}}, num_distinct);
    for (int workers = 1; workers <= 7; workers += kWorkersStep) {
      problem.SetRole(CandidateRole::kPublish);
      problem.Check(workers);
      problem.SetRole(CandidateRole::kRestrict);
      problem.Check(workers);
    }
  }
  // Every score zero, of either sign: the first entries of all.
  for (const float weight : {0.0f, -0.0f}) {
    Problem problem(Shape(4), {{0, 1200}});
    problem.SetWeights(weight);
    problem.Check(5);
    EXPECT_EQ(problem.Selected(0), (std::vector<int32_t>{0, 1, 2, 3}));
  }
}

TEST(IndexerTest, RoundedScoresSelectByTheirRounding) {
  IndexerShape shape = Shape(20, 8, 10);
  shape.round_scores = true;
  Problem problem(shape, EveryLength(shape));
  for (const CandidateRole role : {CandidateRole::kNone, CandidateRole::kPublish, CandidateRole::kRestrict}) {
    problem.SetRole(role);
    problem.Check(3);
  }
}

TEST(IndexerTest, ScoresThatAreNoNumbersSelectNothing) {
  Problem scored(Shape(4), {{0, 700}});
  scored.SetWeights(std::numeric_limits<float>::quiet_NaN());
  scored.Check(2);
  EXPECT_TRUE(scored.Selected(0).empty());
}

TEST(IndexerTest, StretchesHoldWholeBlocks) {
  EXPECT_EQ(Shape(1, 8).stretch(), 512);
  EXPECT_EQ(Shape(1, 33).stretch(), 264);
  EXPECT_EQ(Shape(1, 100).stretch(), 800);
  for (int64_t block_size = 1; block_size <= 200; ++block_size) EXPECT_EQ(Shape(1, block_size).stretch() % (8 * block_size), 0);
}

TEST(IndexerTest, PartsFitTheListsThatArePromised) {
  for (int64_t rows = 0; rows <= 40; ++rows)
    for (int workers = 1; workers <= 40; ++workers) EXPECT_LE(rows * PartsPerRow(rows, workers), PartialListsMax(rows, workers));
}

}  // namespace
}  // namespace tessera
