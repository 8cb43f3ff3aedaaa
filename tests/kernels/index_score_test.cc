#include "kernels/index_score.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/tier.h"
#include "reference/index_score_ref.h"
#include "reference/matmul_ref.h"
#include "support/matrices.h"

namespace tessera::testing {
namespace {

class IndexScoreTest : public ::testing::TestWithParam<Tier> {
 protected:
  void SetUp() override {
    if (GetParam() > BestTier()) GTEST_SKIP() << "this CPU does not run " << TierName(GetParam());
    SetActiveTier(GetParam());
  }
  void TearDown() override { SetActiveTier(BestTier()); }
};
INSTANTIATE_TEST_SUITE_P(Tiers, IndexScoreTest, ::testing::Values(Tier::kScalar, Tier::kAvx2, Tier::kAvx512),
                         [](const auto& info) { return std::string(TierName(info.param)); });

struct Problem {
  Matrix keys;
  std::vector<bf16> queries;
  std::vector<float> head_weights;
  int64_t num_heads;

  Problem(int64_t heads, int64_t entries, int64_t dim)
      : keys(RandomMatrix({Format::kE2M1, entries, dim, 1, 32, 124, 130}, 1)),
        queries(RandomActivations<bf16>(heads * dim, 2)),
        head_weights(RandomActivations<float>(heads, 3)),
        num_heads(heads) {}

  std::vector<float> Scores(const QuantView& entries, bool round) const {
    const AlignedBuffer packed(PackedBytes<bf16>(Format::kE2M1, num_heads, entries.cols));
    const AlignedBuffer scratch(IndexScoreScratchBytes(num_heads, entries.rows, entries.cols));
    PackActivations<bf16>(MakeView(queries.data(), num_heads, entries.cols), nullptr, num_heads, Format::kE2M1, packed.get());
    std::vector<float> scores(entries.rows);
    IndexScore({packed.get(), num_heads, head_weights.data(), entries, round, scores.data(), scratch.get()});
    return scores;
  }
};

TEST_P(IndexScoreTest, AgreesWithReference) {
  for (const int64_t num_heads : {1, 2, 4, 32, 64})
    for (const int64_t num_entries : {1, 5, 64, 131})
      for (const int64_t dim : {32, 64, 128}) {
        const Problem problem(num_heads, num_entries, dim);
        const std::vector<float> scores = problem.Scores(problem.keys.view, false);
        const MatMulRef dots = MatMulReference(View<const bf16>(MakeView(problem.queries.data(), num_heads, dim)), problem.keys.view);
        for (int64_t j = 0; j < num_entries; ++j) {
          std::vector<double> column(num_heads);
          double dot_error = 0, magnitude = 0;
          for (int64_t h = 0; h < num_heads; ++h) {
            const int64_t i = h * num_entries + j;
            column[h] = dots.values[i];
            // relu does not widen an error, a[h] scales it.
            dot_error += std::fabs(problem.head_weights[h]) * MatMulTolerance(dim, dots.magnitudes[i], dots.values[i], false);
          }
          const double expected = IndexScoreRef(column, problem.head_weights, &magnitude);
          // The sum over heads: at most two roundings per head, u = 2^-24 each.
          const double sum_error = 2.0 * static_cast<double>(num_heads) * 0x1p-24 * (magnitude + dot_error) * (1 + 1e-5);
          ASSERT_NEAR(scores[j], expected, dot_error + sum_error) << num_heads << " heads, entry " << j << " of " << num_entries;
        }
      }
}

TEST_P(IndexScoreTest, RoundedFormRoundsWhereTheReferenceDoes) {
  const Problem problem(32, 70, 128);
  const std::vector<float> scores = problem.Scores(problem.keys.view, true);
  const auto dots = MultiplyRows<bf16, float>(MakeView(problem.queries.data(), 32, 128), nullptr, 32, problem.keys.view);
  for (int64_t j = 0; j < 70; ++j) {
    std::vector<float> column(32);
    for (int64_t h = 0; h < 32; ++h) column[h] = dots[h * 70 + j];
    EXPECT_EQ(scores[j], RoundedIndexScoreRef(column, problem.head_weights)) << j;
  }
}

TEST_P(IndexScoreTest, StretchesChangeNoBit) {
  const Problem problem(32, 100, 128);
  for (const bool round : {false, true}) {
    const std::vector<float> whole = problem.Scores(problem.keys.view, round);
    for (const int64_t first : {0, 1, 37, 99}) {
      const std::vector<float> part = problem.Scores(problem.keys.view.Rows(first, 100 - first), round);
      EXPECT_EQ(std::memcmp(part.data(), whole.data() + first, part.size() * sizeof(float)), 0) << first;
    }
  }
}

}  // namespace
}  // namespace tessera::testing
