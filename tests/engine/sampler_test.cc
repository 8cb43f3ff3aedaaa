#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  const auto token = Sample(logits, {}, {.temperature = 0}, 0, scratch);
  ASSERT_TRUE(token);
  EXPECT_EQ(token->token_id, 2);
  EXPECT_EQ(token->probability, 1);
  // A tiny temperature splits between the two equal maxima and gives nothing to the rest.
  std::set<int32_t> seen;
  for (uint64_t position = 0; position < 60; ++position)
    seen.insert(Sample(logits, {}, {.temperature = 1e-30f}, position, scratch)->token_id);
  EXPECT_EQ(seen, (std::set<int32_t>{2, 3}));  // misses one of them with probability 2^-59
  EXPECT_EQ(Sample(logits, {}, {.temperature = 1, .top_k = 1}, 3, scratch)->token_id, 2);
  EXPECT_EQ(Sample(logits, {}, {.temperature = 1, .top_p = 0}, 3, scratch)->token_id, 2);
}

TEST(SamplerTest, LogitsWithoutADistributionAreAStatus) {
  SamplerScratch scratch(4);
  for (float temperature : {0.0f, 1.0f}) {
    const SamplingOptions options = {.temperature = temperature, .top_k = 2, .top_p = 0.9f, .min_p = 0.1f};
    EXPECT_FALSE(Sample(std::vector<float>{1, NAN, 2, 3}, {}, options, 0, scratch));
    EXPECT_FALSE(Sample(std::vector<float>{NAN, NAN, NAN, NAN}, {}, options, 0, scratch));
    EXPECT_FALSE(Sample(std::vector<float>{0, 1, kInfinity, 2}, {}, options, 0, scratch));
    EXPECT_FALSE(Sample(std::vector<float>(4, -kInfinity), {}, options, 0, scratch));
    const auto only = Sample(std::vector<float>{-kInfinity, -kInfinity, -5e30f, -kInfinity}, {}, options, 0, scratch);
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
    tokens.push_back(Sample(logits, {}, options, position, scratch)->token_id);
    other_tokens.push_back(Sample(logits, {}, other_seed, position, scratch)->token_id);
  }
  EXPECT_NE(tokens, other_tokens);
  EXPECT_GT(std::set<int32_t>(tokens.begin(), tokens.end()).size(), 30u);
  for (uint64_t position = 50; position-- > 0;)  // in another order and with dirty scratch
    EXPECT_EQ(Sample(logits, {}, options, position, other_scratch)->token_id, tokens[position]);
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
        const auto token = Sample(logits, {}, options, position, scratch);
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
  for (uint64_t position = 0; position < kDraws; ++position) ++counts[Sample(logits, {}, options, position, scratch)->token_id];
  double statistic = 0;
  for (const auto& [id, probability] : reference::Distribution(logits, options)) {
    const double expected = static_cast<double>(probability) * kDraws;
    statistic += (counts[id] - expected) * (counts[id] - expected) / expected;
  }
  const double freedom = 7, z = 5;
  EXPECT_LT(statistic, freedom * std::pow(1 - 2 / (9 * freedom) + z * std::sqrt(2 / (9 * freedom)), 3));
}

// Random penalties and biases, alone and together, on random sequences: the twin adjusts the logits from the token lists themselves, and
// the draw must be the one of its distribution.
struct Tokens {
  std::vector<int32_t> prompt, answer;
  TokenCounts counts;
};

Tokens RandomTokens(uint64_t seed, int64_t vocab_size) {
  Tokens tokens;
  const auto draw = [&](uint64_t stream, uint64_t i) {
    return static_cast<int32_t>(UniformDouble(seed, stream, i) * static_cast<double>(std::min<int64_t>(vocab_size, 60)));
  };
  for (uint64_t i = 0; i < seed % 13; ++i) tokens.prompt.push_back(draw(21, i));
  for (uint64_t i = 0; i < seed % 37; ++i) tokens.answer.push_back(draw(22, i));
  tokens.counts = TokenCounts(tokens.prompt, 40, vocab_size);
  for (const int32_t id : tokens.answer) tokens.counts.Add(id);
  return tokens;
}

std::vector<SamplingOptions> AdjustingOptions(int64_t vocab_size) {
  const auto id = [&](int64_t i) { return static_cast<int32_t>(i % vocab_size); };
  std::vector<SamplingOptions> all = {
      {.repetition_penalty = 1.3F}, {.repetition_penalty = 0.7F},      {.presence_penalty = 1.5F}, {.presence_penalty = -2},
      {.frequency_penalty = 0.4F},  {.frequency_penalty = -0.3F},      {.logit_bias = {{id(3), 4.5F}}},
      {.temperature = 0.8F, .top_k = 9, .top_p = 0.9F, .min_p = 0.02F, .repetition_penalty = 1.1F, .presence_penalty = 0.5F,
       .frequency_penalty = 0.25F},
      {.temperature = 0, .repetition_penalty = 1.5F, .presence_penalty = 2, .frequency_penalty = 2},
  };
  if (vocab_size < 17) return all;
  all.push_back({.logit_bias = {{id(16), -100}, {id(2), 100}}});
  all.push_back({.logit_bias = {{id(5), -100}, {id(6), -99}, {id(7), 7}}});
  all.push_back({.temperature = 1.5F, .top_k = 12, .top_p = 0.97F, .repetition_penalty = 2, .presence_penalty = -1, .frequency_penalty = 1,
                 .logit_bias = {{id(1), 3}, {id(2), -100}, {id(9), -0.5F}}});
  return all;
}

TEST(SamplerTest, PenaltiesAndBiasesMatchTheTwin) {
  SamplerScratch scratch(1000);
  int num_compared = 0, num_changed = 0;
  for (const int64_t vocab_size : {1, 2, 17, 1000})
    for (uint64_t seed = 0; seed < 24; ++seed) {
      std::vector<float> logits = Logits(seed, static_cast<size_t>(vocab_size), 8);
      for (float& logit : logits) logit -= 4;
      if (seed % 3 == 0)
        for (float& logit : logits) logit = std::round(logit);  // ties, and zeros of both signs
      const Tokens tokens = RandomTokens(seed + 7, vocab_size);
      for (SamplingOptions options : AdjustingOptions(vocab_size)) {
        ASSERT_FALSE(SamplingOptionsError(options, vocab_size));
        options.seed = seed;
        const std::vector<float> adjusted = reference::AdjustedLogits(logits, tokens.prompt, tokens.answer, options);
        for (uint64_t position = 0; position < 8; ++position) {
          const auto token = Sample(logits, tokens.counts, options, position, scratch);
          ASSERT_TRUE(token);
          // The adjusted logits as they are, without options that adjust them: equal to the bit, or the draws would part.
          SamplingOptions plain = {.temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p,
                                   .min_p = options.min_p, .seed = options.seed};
          SamplerScratch other_scratch(vocab_size);
          const auto expected = Sample(adjusted, {}, plain, position, other_scratch);
          ASSERT_EQ(token->token_id, expected->token_id) << "vocabulary " << vocab_size << " seed " << seed;
          ASSERT_EQ(token->probability, expected->probability);
          num_changed += token->token_id != Sample(logits, {}, plain, position, other_scratch)->token_id;
          if (options.temperature == 0) continue;
          const auto distribution = reference::Distribution(adjusted, plain);
          ASSERT_EQ(distribution.count(token->token_id), 1u);
          ASSERT_NEAR(token->probability, static_cast<double>(distribution.at(token->token_id)), 1e-11 * token->probability);
          ++num_compared;
        }
      }
    }
  EXPECT_GT(num_compared, 6000);
  EXPECT_GT(num_changed, 1000);
}

TEST(SamplerTest, ABannedTokenIsNeverDrawnAndBansOfAllAreAStatus) {
  SamplerScratch scratch(3);
  const std::vector<float> logits = {9, 1, 1};
  for (uint64_t position = 0; position < 100; ++position) {
    EXPECT_NE(Sample(logits, {}, {.logit_bias = {{0, -100}}}, position, scratch)->token_id, 0);
    EXPECT_EQ(Sample(logits, {}, {.logit_bias = {{2, 100}}}, position, scratch)->token_id, 2);
  }
  EXPECT_FALSE(Sample(logits, {}, {.logit_bias = {{0, -100}, {1, -100}, {2, -100}}}, 0, scratch));
  // A poisoned row stays one when the poison is banned.
  EXPECT_FALSE(Sample(std::vector<float>{NAN, 1, 2}, {}, {.logit_bias = {{0, -100}}}, 0, scratch));
  EXPECT_FALSE(Sample(std::vector<float>{kInfinity, 1, 2}, {}, {.temperature = 0, .logit_bias = {{0, -100}}}, 0, scratch));
}

// Penalties of numbers at the end of fp32 may overflow: downwards a token becomes impossible, upwards there is no distribution.
TEST(SamplerTest, OverflowOfAPenaltyIsAMaskOrAStatus) {
  SamplerScratch scratch(2);
  TokenCounts counts(std::vector<int32_t>{1}, 0, 2);
  const auto masked = Sample(std::vector<float>{-3, -3e38F}, counts, {.repetition_penalty = 100}, 0, scratch);
  ASSERT_TRUE(masked);
  EXPECT_EQ(masked->token_id, 0);
  EXPECT_EQ(masked->probability, 1);
  EXPECT_FALSE(Sample(std::vector<float>{-3, 3e38F}, counts, {.repetition_penalty = 0.01F}, 0, scratch));
}

TEST(SamplerTest, BadOptionsAreNamed) {
  const auto error = [](const SamplingOptions& options) { return SamplingOptionsError(options, 10).value_or("none"); };
  EXPECT_EQ(error({}), "none");
  EXPECT_EQ(error({.temperature = -1}), "temperature -1 is not between 0 and 1000");
  EXPECT_EQ(error({.temperature = NAN}), "temperature nan is not between 0 and 1000");
  EXPECT_EQ(error({.top_k = -3}), "top_k -3 is negative");
  EXPECT_EQ(error({.top_p = 1.5f}), "top_p 1.5 is not between 0 and 1");
  EXPECT_EQ(error({.min_p = NAN}), "min_p nan is not between 0 and 1");
  EXPECT_EQ(error({.repetition_penalty = 0}), "repetition_penalty 0 is not between 0.01 and 100");
  EXPECT_EQ(error({.repetition_penalty = NAN}), "repetition_penalty nan is not between 0.01 and 100");
  EXPECT_EQ(error({.presence_penalty = 2.5F}), "presence_penalty 2.5 is not between -2 and 2");
  EXPECT_EQ(error({.frequency_penalty = -2.5F}), "frequency_penalty -2.5 is not between -2 and 2");
  EXPECT_EQ(error({.logit_bias = {{10, 1}}}), "logit_bias: token 10 is outside the vocabulary of 10");
  EXPECT_EQ(error({.logit_bias = {{-1, 1}}}), "logit_bias: token -1 is outside the vocabulary of 10");
  EXPECT_EQ(error({.logit_bias = {{3, 101}}}), "logit_bias: token 3: 101 is not between -100 and 100");
  EXPECT_EQ(error({.logit_bias = {{3, NAN}}}), "logit_bias: token 3: nan is not between -100 and 100");
  EXPECT_EQ(error({.logit_bias = {{3, 1}, {4, 1}, {3, 1}}}), "logit_bias: token 3 is there twice");
  EXPECT_EQ(error({.top_logprobs = 21}), "top_logprobs 21 is not between 0 and 20");
  EXPECT_EQ(error({.top_logprobs = -2}), "top_logprobs -2 is not between 0 and 20");
  // The ends of every range are allowed.
  EXPECT_EQ(error({.temperature = 1000, .top_p = 0, .min_p = 1, .repetition_penalty = 100, .presence_penalty = -2, .frequency_penalty = 2,
                   .logit_bias = {{0, -100}, {9, 100}}, .top_logprobs = 20}),
            "none");
}

TEST(SamplerTest, TopLogProbabilitiesAreTheModelsOwnAndMatchTheTwin) {
  for (const int64_t vocab_size : {1, 2, 17, 1000}) {
    SamplerScratch scratch(vocab_size);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      std::vector<float> logits = Logits(seed, static_cast<size_t>(vocab_size), 10);
      if (seed % 2 == 0)
        for (float& logit : logits) logit = std::round(logit);
      if (seed % 5 == 0 && vocab_size > 17) std::fill(logits.begin() + 6, logits.end(), -kInfinity);
      const std::vector<long double> expected = reference::LogSoftmax(logits);
      std::vector<int32_t> order;
      for (int32_t id = 0; id < vocab_size; ++id)
        if (logits[static_cast<size_t>(id)] > -kInfinity) order.push_back(id);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
      const int32_t drawn = static_cast<int32_t>(seed) % static_cast<int32_t>(vocab_size);
      for (const int num_top : {0, 1, 5, 20}) {
        const LogProbabilities got = TopLogProbabilities(logits, drawn, num_top, scratch);
        ASSERT_EQ(got.num_top, std::min<int64_t>(num_top, static_cast<int64_t>(order.size())));
        // A sum of n positive doubles errs by at most n * 2^-53 of itself, so its logarithm by as much; n <= 1000.
        const double tolerance = 1000 * 0x1p-53;
        EXPECT_EQ(got.drawn, LogProbability(logits, drawn));
        if (std::isfinite(got.drawn)) {
          EXPECT_NEAR(got.drawn, static_cast<double>(expected[drawn]), tolerance + 0x1p-50);
        }
        for (int i = 0; i < got.num_top; ++i) {
          ASSERT_EQ(got.top[i].token_id, order[i]) << "vocabulary " << vocab_size << " seed " << seed;
          EXPECT_NEAR(got.top[i].log_probability, static_cast<double>(expected[order[i]]), tolerance + 0x1p-50);
        }
      }
    }
  }
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
