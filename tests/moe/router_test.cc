#include "moe/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "reference/swiglu_ref.h"
#include "support/kernel_inputs.h"
#include "support/op_inputs.h"

namespace tessera {
namespace {

using testing::RandomValues;
using testing::RunOnWorkers;
using testing::SqrtSoftplusRef;
using testing::StepRows;

constexpr float kV41Epsilon = 1e-20f;

struct Routing {
  std::vector<int32_t> ids;
  std::vector<float> weights, scores;
};

// A router over `num_experts` experts and what goes into it.
struct Problem {
  int64_t num_experts = 8;
  int k = 3;
  std::vector<float> logits;  // [rows, num_experts]
  std::vector<float> bias;
  std::vector<uint8_t> tid2eid;  // empty: not a hash layer
  float epsilon = 0, scaling = 1.5f;

  int32_t num_rows() const { return static_cast<int32_t>(static_cast<int64_t>(logits.size()) / num_experts); }
  // Row r is token id r; `num_padding` rows of the logits beyond the last are padding that is run.
  Routing Run(int num_workers = 1, int32_t num_padding = 0) const {
    StepRows rows(num_rows());
    rows.Add(0, 0, num_rows() - num_padding);
    rows.step().Pad(num_rows(), true);
    Routing out{std::vector<int32_t>(static_cast<size_t>(num_rows() * k), -7), std::vector<float>(static_cast<size_t>(num_rows() * k), -7),
                logits};
    RouterArguments arguments;
    arguments.step = &rows.step();
    arguments.rows = rows.step().AllRows();
    arguments.scores = MakeView(out.scores.data(), num_rows(), num_experts);
    arguments.num_experts_per_tok = k;
    arguments.bias = tid2eid.empty() ? bias.data() : nullptr;
    arguments.tid2eid = tid2eid.empty() ? nullptr : tid2eid.data() + 1;
    arguments.sum_epsilon = epsilon;
    arguments.scaling_factor = scaling;
    arguments.expert_ids = out.ids.data();
    arguments.weights = out.weights.data();
    RunOnWorkers(num_workers, 0, [&](const WorkerContext& worker) { RouteRows(arguments, worker); });
    return out;
  }
  // Ids of each token's experts as a checkpoint stores them, from an odd address on.
  void SetHash(const std::vector<int64_t>& ids) {
    tid2eid.resize(1 + ids.size() * 8);
    std::memcpy(tid2eid.data() + 1, ids.data(), ids.size() * 8);
  }
};

// The k best of score + bias by (value descending, id ascending), as ascending ids.
std::vector<int32_t> BestExperts(const float* scores, const std::vector<float>& bias, int k) {
  std::vector<int32_t> ids(bias.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return scores[a] + bias[static_cast<size_t>(a)] > scores[b] + bias[static_cast<size_t>(b)];
  });
  ids.resize(static_cast<size_t>(k));
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Weights of a row in double. Each is off by at most k - 1 roundings of the sum, one of the epsilon, a quotient and a product, u = 2^-24
// each.
void ExpectWeights(const Problem& problem, const Routing& routing, int64_t row) {
  double sum = problem.epsilon;
  const auto score = [&](int i) {
    return static_cast<double>(
        routing.scores[static_cast<size_t>(row * problem.num_experts + routing.ids[static_cast<size_t>(row * problem.k + i)])]);
  };
  for (int i = 0; i < problem.k; ++i) sum += score(i);
  for (int i = 0; i < problem.k; ++i) {
    const double expected = score(i) / sum * problem.scaling;
    EXPECT_NEAR(routing.weights[static_cast<size_t>(row * problem.k + i)], expected, (problem.k + 2) * 0x1p-24 * 1.001 * expected)
        << "row " << row;
  }
}

TEST(RouterTest, RandomRowsMatchTheTwinOnAnyNumberOfWorkers) {
  for (const auto& [num_experts, k] : {std::pair{8, 3}, {9, 1}, {33, 6}, {384, 6}, {64, 64}, {5, 5}})
    for (const float epsilon : {0.0f, kV41Epsilon}) {
      Problem problem{num_experts, k, RandomValues<float>(1, 13 * num_experts, -6, 6), RandomValues<float>(2, num_experts, -0.5, 0.5)};
      problem.epsilon = epsilon;
      const Routing routing = problem.Run();
      for (int64_t row = 0; row < problem.num_rows(); ++row) {
        const float* scores = routing.scores.data() + row * num_experts;
        for (int64_t expert = 0; expert < num_experts; ++expert) {
          const double expected = SqrtSoftplusRef(problem.logits[static_cast<size_t>(row * num_experts + expert)]);
          ASSERT_NEAR(scores[expert], expected, 4 * 0x1p-23 * expected);  // 4 ulp, as promised by SqrtSoftplus
        }
        const std::vector<int32_t> ids(routing.ids.begin() + row * k, routing.ids.begin() + (row + 1) * k);
        EXPECT_EQ(ids, BestExperts(scores, problem.bias, k)) << "row " << row;
        ExpectWeights(problem, routing, row);
      }
      for (int workers = 2; workers <= 15; ++workers) {
        const Routing divided = problem.Run(workers);
        EXPECT_EQ(divided.ids, routing.ids);
        EXPECT_TRUE(testing::SameBits(divided.weights, routing.weights));
      }
    }
}

TEST(RouterTest, EqualScoresPickTheLowerId) {
  Problem problem{8, 3, std::vector<float>(16, 0.5f), std::vector<float>(8, 0.0f)};
  EXPECT_EQ(problem.Run().ids, (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  problem.logits = {1, 2, 1, 1, 2, 1, 1, 1};  // two better ones, then the first of equals
  EXPECT_EQ(problem.Run().ids, (std::vector<int32_t>{0, 1, 4}));
  problem.logits.assign(8, 1);
  problem.bias = {0, 0, 0, 0.25f, 0, 0.25f, 0, 0.25f};
  EXPECT_EQ(problem.Run().ids, (std::vector<int32_t>{3, 5, 7}));
  problem.bias = {0, 0, 0, 0.25f, 0, 0.25f, 0, 0};
  EXPECT_EQ(problem.Run().ids, (std::vector<int32_t>{0, 3, 5}));
}

TEST(RouterTest, TheBiasSelectsAndDoesNotWeigh) {
  Problem problem{4, 2, {3, 2, 1, -4}, {0, 0, 0, 50}};
  const Routing routing = problem.Run();
  EXPECT_EQ(routing.ids, (std::vector<int32_t>{0, 3}));
  ExpectWeights(problem, routing, 0);
  EXPECT_LT(routing.weights[1], 0.2f);  // the score of the forced expert is small, whatever its bias
  EXPECT_NEAR(routing.weights[0] + routing.weights[1], problem.scaling, 1e-6);
}

TEST(RouterTest, ScoresThatAllVanishWeighNothingWithTheEpsilonOfV41) {
  Problem problem{4, 2, {-500, -400, -300, -600}, {0, 0, 0, 0}};
  problem.epsilon = kV41Epsilon;
  const Routing routing = problem.Run();
  for (const float weight : routing.weights) EXPECT_EQ(weight, 0.0f);
}

TEST(RouterTest, HashLayersTakeTheExpertsOfTheTokenInAscendingOrder) {
  Problem problem{8, 3, RandomValues<float>(5, 24, -4, 4)};
  problem.SetHash({7, 0, 3, 1, 2, 4, 6, 5, 0});
  const Routing routing = problem.Run(2);
  EXPECT_EQ(routing.ids, (std::vector<int32_t>{0, 3, 7, 1, 2, 4, 0, 5, 6}));
  for (int64_t row = 0; row < 3; ++row) ExpectWeights(problem, routing, row);
}

TEST(RouterTest, AHashedIdThatIsNoExpertLeavesTheRowWithoutExperts) {
  Problem problem{8, 2, RandomValues<float>(6, 40, -4, 4)};
  problem.SetHash({7, 8, -1, 0, 1, int64_t{1} << 32, 2, 1, INT64_MIN, INT64_MAX});
  const Routing routing = problem.Run();
  EXPECT_EQ(routing.ids, (std::vector<int32_t>{-1, -1, -1, -1, -1, -1, 1, 2, -1, -1}));
  for (size_t i = 0; i < routing.ids.size(); ++i) EXPECT_EQ(routing.weights[i] == 0, routing.ids[i] == -1);
}

TEST(RouterTest, AnExpertHashedTwiceRunsOnceWithBothWeights) {
  Problem problem{8, 4, RandomValues<float>(7, 16, -4, 4)};
  problem.SetHash({5, 2, 5, 5, 3, 3, 1, 1});
  const Routing routing = problem.Run();
  EXPECT_EQ(routing.ids, (std::vector<int32_t>{2, 5, -1, -1, 1, -1, 3, -1}));
  for (int64_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += routing.weights[static_cast<size_t>(row * 4 + i)];
    EXPECT_NEAR(sum, problem.scaling, 8 * 0x1p-24 * problem.scaling);  // the shares of a normalised sum, whoever they went to
  }
  const double score2 = routing.scores[2], score5 = routing.scores[5];
  EXPECT_NEAR(routing.weights[0], score2 / (score2 + 3 * score5) * problem.scaling, 1e-6);
  EXPECT_EQ(routing.weights[2], 0.0f);
}

TEST(RouterTest, PaddingRowsHaveNoExperts) {
  Problem problem{8, 3, RandomValues<float>(8, 40, -4, 4), std::vector<float>(8, 0.0f)};
  for (const bool hash : {false, true}) {
    if (hash) problem.SetHash(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2});
    const Routing routing = problem.Run(3, 2);
    for (size_t i = 0; i < 15; ++i) {
      EXPECT_EQ(routing.ids[i] == -1, i >= 9);
      EXPECT_EQ(routing.weights[i] == 0, i >= 9);
    }
  }
}

TEST(RouterTest, ScoresThatAreNoNumbersAreNeverChosen) {
  Problem problem{4, 2, {NAN, 1, NAN, 0, /**/ NAN, NAN, NAN, 3, /**/ NAN, NAN, NAN, NAN, /**/ 0, 1, 2, 3}, {9, 0, 9, 0}};
  EXPECT_EQ(problem.Run().ids, (std::vector<int32_t>{1, 3, -1, -1, -1, -1, 0, 2}));
  EXPECT_EQ(problem.Run().weights[2], 0.0f);
}

}  // namespace
}  // namespace tessera
