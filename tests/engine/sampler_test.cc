#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "core/random.h"
#include "reference/sampler_ref.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Logits(uint64_t seed, size_t count, double range) {
  std::vector<float> logits(count);
  for (size_t i = 0; i < count; ++i) logits[i] = static_cast<float>(range * UniformDouble(seed, 9, i));
  return logits;
}

TEST(SamplerTest, GreedyTakesTheLowestOfEqualMaxima) {
  SamplerScratch scratch(5);
  const std::vector<float> logits = {-kInfinity, 2, 3, 3, -1};
  const auto token = Sample(logits, {.temperature = 0}, 0, scratch);
  ASSERT_TRUE(token);
  EXPECT_EQ(token->token_id, 2);
  EXPECT_EQ(token->probability, 1);
  // A tiny temperature splits between the two equal maxima and gives nothing to the rest.
  std::set<int32_t> seen;
  for (uint64_t position = 0; position < 60; ++position) seen.insert(Sample(logits, {.temperature = 1e-30f}, position, scratch)->token_id);
  EXPECT_EQ(seen, (std::set<int32_t>{2, 3}));  // misses one of them with probability 2^-59
  EXPECT_EQ(Sample(logits, {.temperature = 1, .top_k = 1}, 3, scratch)->token_id, 2);
  EXPECT_EQ(Sample(logits, {.temperature = 1, .top_p = 0}, 3, scratch)->token_id, 2);
}

TEST(SamplerTest, LogitsWithoutADistributionAreAStatus) {
  SamplerScratch scratch(4);
  for (float temperature : {0.0f, 1.0f}) {
    const SamplingOptions options = {.temperature = temperature, .top_k = 2, .top_p = 0.9f, .min_p = 0.1f};
    EXPECT_FALSE(Sample(std::vector<float>{1, NAN, 2, 3}, options, 0, scratch));
    EXPECT_FALSE(Sample(std::vector<float>{NAN, NAN, NAN, NAN}, options, 0, scratch));
    EXPECT_FALSE(Sample(std::vector<float>{0, 1, kInfinity, 2}, options, 0, scratch));
    EXPECT_FALSE(Sample(std::vector<float>(4, -kInfinity), options, 0, scratch));
    const auto only = Sample(std::vector<float>{-kInfinity, -kInfinity, -5e30f, -kInfinity}, options, 0, scratch);
    ASSERT_TRUE(only);
    EXPECT_EQ(only->token_id, 2);
  }
}

TEST(SamplerTest, TheDrawIsAFunctionOfSeedAndPosition) {
  SamplerScratch scratch(1000), other_scratch(5000);
  const std::vector<float> logits = Logits(1, 1000, 3);
  const SamplingOptions options = {.temperature = 1, .seed = 77}, other_seed = {.temperature = 1, .seed = 78};
  std::vector<int32_t> tokens, other_tokens;
  for (uint64_t position = 0; position < 50; ++position) {
    tokens.push_back(Sample(logits, options, position, scratch)->token_id);
    other_tokens.push_back(Sample(logits, other_seed, position, scratch)->token_id);
  }
  EXPECT_NE(tokens, other_tokens);
  EXPECT_GT(std::set<int32_t>(tokens.begin(), tokens.end()).size(), 30u);
  for (uint64_t position = 50; position-- > 0;)  // in another order and with dirty scratch
    EXPECT_EQ(Sample(logits, options, position, other_scratch)->token_id, tokens[position]);
}

// The token must be the one that the twin's distribution has at the same uniform number, unless that number is within 1e-12 of a border
// between two tokens: sums of at most 10^4 doubles are within 10^4 * 2^-53 = 1.2e-12 of exact ones.
TEST(SamplerTest, FiltersMatchTheTwin) {
  SamplerScratch scratch(3000);
  int num_compared = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::vector<float> logits = Logits(seed, seed % 3 == 0 ? 3000 : 40, seed % 5 == 0 ? 0.5 : 12);
    if (seed % 4 == 0)
      for (float& logit : logits) logit = std::round(logit * 2) / 2;  // ties
    if (seed % 7 == 0) logits[3] = logits[11] = -kInfinity;
    for (const SamplingOptions& base :
         {SamplingOptions{}, SamplingOptions{.temperature = 0.3f}, SamplingOptions{.top_k = 7}, SamplingOptions{.top_p = 0.9f},
          SamplingOptions{.top_p = 0.999f}, SamplingOptions{.min_p = 0.2f}, SamplingOptions{.temperature = 2, .top_k = 30, .top_p = 0.7f},
          SamplingOptions{.temperature = 1.3f, .top_k = 500, .top_p = 0.95f, .min_p = 0.05f}}) {
      SamplingOptions options = base;
      options.seed = seed;
      const auto expected = reference::Distribution(logits, options);
      for (uint64_t position = 0; position < 20; ++position) {
        const auto token = Sample(logits, options, position, scratch);
        ASSERT_TRUE(token);
        ASSERT_EQ(expected.count(token->token_id), 1u) << "token " << token->token_id << " is filtered out, seed " << seed;
        ASSERT_NEAR(token->probability, static_cast<double>(expected.at(token->token_id)), 1e-11 * token->probability);
        const long double uniform = UniformDouble(seed, 1, position);
        long double cumulative = 0;
        for (const auto& [id, probability] : expected) {
          const bool near_border = std::fabs(cumulative + probability - uniform) < 1e-12L || std::fabs(cumulative - uniform) < 1e-12L;
          cumulative += probability;
          if (cumulative <= uniform) continue;
          if (near_border) break;
          ASSERT_EQ(token->token_id, id) << "seed " << seed << " position " << position;
          ++num_compared;
          break;
        }
      }
    }
  }
  EXPECT_GT(num_compared, 9000);  // of 9600
}

// Pearson's statistic of 20,000 draws over 8 tokens has 7 degrees of freedom; Wilson and Hilferty's cube with z = 5 bounds it but for a
// chance of 3e-7. The draws are fixed, so the test cannot flicker.
TEST(SamplerTest, DrawsFollowTheDistribution) {
  SamplerScratch scratch(8);
  const std::vector<float> logits = {0, 1, -1, 0.5f, 2, -0.3f, 1.7f, 0.1f};
  const SamplingOptions options = {.temperature = 1.2f, .seed = 5};
  constexpr int kDraws = 20000;
  std::vector<int> counts(8);
  for (uint64_t position = 0; position < kDraws; ++position) ++counts[Sample(logits, options, position, scratch)->token_id];
  double statistic = 0;
  for (const auto& [id, probability] : reference::Distribution(logits, options)) {
    const double expected = static_cast<double>(probability) * kDraws;
    statistic += (counts[id] - expected) * (counts[id] - expected) / expected;
  }
  const double freedom = 7, z = 5;
  EXPECT_LT(statistic, freedom * std::pow(1 - 2 / (9 * freedom) + z * std::sqrt(2 / (9 * freedom)), 3));
}

TEST(SamplerTest, BadOptionsAreNamed) {
  EXPECT_FALSE(SamplingOptionsError({}));
  EXPECT_EQ(SamplingOptionsError({.temperature = -1}).value(), "temperature -1 is not between 0 and 1000");
  EXPECT_EQ(SamplingOptionsError({.temperature = NAN}).value(), "temperature nan is not between 0 and 1000");
  EXPECT_EQ(SamplingOptionsError({.top_k = -3}).value(), "top_k -3 is negative");
  EXPECT_EQ(SamplingOptionsError({.top_p = 1.5f}).value(), "top_p 1.5 is not between 0 and 1");
  EXPECT_EQ(SamplingOptionsError({.min_p = NAN}).value(), "min_p nan is not between 0 and 1");
}

TEST(SamplerTest, LogProbabilitiesSumToOneAndMatchAnExactCase) {
  const std::vector<float> logits = Logits(3, 2000, 20);
  double sum = 0;
  for (int32_t id = 0; id < 2000; ++id) sum += std::exp(LogProbability(logits, id));
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_NEAR(LogProbability(std::vector<float>{500, 500, 500, 500}, 2), -std::log(4.0), 1e-15);
  EXPECT_EQ(LogProbability(std::vector<float>{0, -kInfinity}, 0), 0);
  EXPECT_EQ(LogProbability(std::vector<float>{0, -kInfinity}, 1), -kInfinity);
  EXPECT_TRUE(std::isnan(LogProbability(std::vector<float>{0, NAN}, 0)));
}

}  // namespace
}  // namespace tessera
