#include "kernels/hyper_connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "reference/hyper_connection_ref.h"
#include "support/each_tier.h"
#include "support/tensors.h"

namespace tessera {
namespace {

using testing::ForEachTier;
using testing::kRounding;
using testing::RandomValues;

void ExpectClose(const float* values, const std::vector<float>& expected, size_t first, size_t count, double relative) {
  for (size_t i = 0; i < count; ++i)
    EXPECT_NEAR(values[i], expected[first + i], relative * std::fabs(expected[first + i])) << "value " << i;
}

// The golden values are the fp64 results. fp32 has 40 normalisations, each two roundings of 2^-24 and a sum of four: at most
// 40 * 5 * 6e-8 = 1.2e-5 if all errors added up; normalising again cancels most of it, so 1e-5 relative is asked for.
TEST(HyperConnectionTest, MixMatchesTheGoldenCases) {
  const auto tensors = testing::ReadTensors("tests/golden/formats/formats.safetensors");
  for (const std::string prefix : {"mhc.", "mhc.rand."}) {
    const auto get = [&](const char* name) { return tensors.at(prefix + name).As<float>(); };
    const std::vector<float> m = get("m"), base = get("base"), scale = get("scale");
    const std::vector<float> pre = get("pre"), post = get("post"), comb = get("comb");
    ASSERT_EQ(m.size() % 24, 0u);
    for (size_t i = 0; i < m.size() / 24; ++i) {
      SCOPED_TRACE(prefix + std::to_string(i));
      HcCoefficients mix;
      HcMix(m.data() + i * 24, 1.0f, base.data(), scale.data(), {}, &mix);
      ExpectClose(mix.pre, pre, i * 4, 4, 1e-5);
      ExpectClose(mix.post, post, i * 4, 4, 1e-5);
      ExpectClose(mix.comb, comb, i * 16, 16, 1e-5);
    }
  }
}

// Logits of up to 3: m, r and scale make three roundings of the logit, 3 * 3 * 2^-24 absolute and so relative in its exponential,
// which is within the allowance above.
TEST(HyperConnectionTest, MixMatchesTwinForEveryNumberOfStreams) {
  for (int s = 1; s <= kHcMultMax; ++s) {
    const size_t num_mixes = static_cast<size_t>(2 * s + s * s);
    const std::vector<float> base = RandomValues<float>(11, static_cast<int64_t>(num_mixes), -1, 1);
    const float scale[3] = {0.5f, 0.75f, 1.25f};
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<float> m = RandomValues<float>(seed + 100, static_cast<int64_t>(num_mixes), -4, 4);
      HcCoefficients mix;
      HcMix(m.data(), 0.4f, base.data(), scale, {.hc_mult = s, .sinkhorn_iters = 7, .hc_eps = 1e-4f}, &mix);
      const auto twin = reference::HcMix(m.data(), 0.4f, base.data(), scale, s, 7, 1e-4f);
      for (int j = 0; j < s; ++j) {
        EXPECT_NEAR(mix.pre[j], twin.pre[j], 1e-5 * twin.pre[j]);
        EXPECT_NEAR(mix.post[j], twin.post[j], 1e-5 * twin.post[j]);
      }
      for (int i = 0; i < s * s; ++i) EXPECT_NEAR(mix.comb[i], twin.comb[i], 1e-5 * twin.comb[i]);
      float head[kHcMultMax];
      HcHeadWeights(m.data(), 0.4f, base.data(), scale, {.hc_mult = s, .hc_eps = 1e-4f}, head);
      EXPECT_EQ(std::memcmp(head, mix.pre, static_cast<size_t>(s) * sizeof(float)), 0);
    }
  }
}

TEST(HyperConnectionTest, MixSurvivesExtremeLogits) {
  std::vector<float> m(24, 0.0f), base(24, 0.0f);
  const float scale[3] = {1, 1, 1};
  m[0] = 1e4f, m[1] = -1e4f, m[8] = 1e4f, m[13] = -1e4f;
  HcCoefficients mix;
  HcMix(m.data(), 1.0f, base.data(), scale, {}, &mix);
  EXPECT_EQ(mix.pre[0], 1.0f + 1e-6f);
  EXPECT_EQ(mix.pre[1], 1e-6f);
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isfinite(mix.comb[i]) && mix.comb[i] >= 0) << i;
}

template <class T>
class StreamsTest : public ::testing::Test {};
using ActivationTypes = ::testing::Types<bf16, float>;
TYPED_TEST_SUITE(StreamsTest, ActivationTypes);

// A sum of S products in fp32 is within (S + 1) 2^-24 of the sum of their magnitudes; then one rounding to T.
template <class T>
double Bound(double expected, double magnitude, int num_terms) {
  const double error = (num_terms + 1) * 0x1p-24 * magnitude;
  return error + kRounding<T> * (std::fabs(expected) + error);
}

HcCoefficients Coefficients(const std::vector<float>& post, const std::vector<float>& comb) {
  HcCoefficients coefficients = {};
  std::copy(post.begin(), post.end(), coefficients.post);
  std::copy(comb.begin(), comb.end(), coefficients.comb);
  return coefficients;
}

TYPED_TEST(StreamsTest, CollapseAndExpandMatchTwinOnEveryTail) {
  using T = TypeParam;
  ForEachTier([] {
    for (int s = 1; s <= kHcMultMax; ++s) {
      const std::vector<float> w = RandomValues<float>(1, s, -1, 1), post = RandomValues<float>(2, s, -1, 1);
      const std::vector<float> comb = RandomValues<float>(3, s * s, -1, 1);
      const HcCoefficients coefficients = Coefficients(post, comb);
      for (int64_t cols = 0; cols <= 35; ++cols) {
        const int64_t stride = cols + cols % 3;
        const std::vector<T> x = RandomValues<T>(4, s * stride + 1, -3, 3), y = RandomValues<T>(5, cols, -3, 3);
        std::vector<T> collapsed(static_cast<size_t>(cols)), expanded = x;
        HcCollapse(x.data(), stride, w.data(), s, cols, collapsed.data());
        HcExpand(y.data(), coefficients, s, cols, expanded.data(), stride);
        for (int64_t i = 0; i < cols; ++i) {
          double sum = 0, magnitude = 0;
          for (int j = 0; j < s; ++j) {
            const double product = static_cast<double>(w[j]) * ToFloat(x[j * stride + i]);
            sum += product, magnitude += std::fabs(product);
          }
          ASSERT_NEAR(ToFloat(collapsed[i]), sum, Bound<T>(sum, magnitude, s)) << s << " streams, column " << i << " of " << cols;
          for (int k = 0; k < s; ++k) {
            sum = static_cast<double>(post[k]) * ToFloat(y[i]), magnitude = std::fabs(sum);
            for (int j = 0; j < s; ++j) {
              const double product = static_cast<double>(comb[j * s + k]) * ToFloat(x[j * stride + i]);
              sum += product, magnitude += std::fabs(product);
            }
            ASSERT_NEAR(ToFloat(expanded[k * stride + i]), sum, Bound<T>(sum, magnitude, s + 1)) << s << " streams, to " << k;
          }
        }
        for (int64_t i = cols; i < stride; ++i) ASSERT_EQ(ToFloat(expanded[i]), ToFloat(x[i])) << "padding was written";
      }
    }
  });
}

TYPED_TEST(StreamsTest, AColumnDoesNotDependOnWhereTheRangeIsCut) {
  using T = TypeParam;
  constexpr int kStreams = 4;
  constexpr int64_t kCols = 70;
  const std::vector<float> w = RandomValues<float>(1, kStreams, -1, 1);
  const HcCoefficients coefficients = Coefficients(w, RandomValues<float>(3, kStreams * kStreams, -1, 1));
  const std::vector<T> x = RandomValues<T>(4, kStreams * kCols, -3, 3), y = RandomValues<T>(5, kCols, -3, 3);
  ForEachTier([&] {
    std::vector<T> collapsed(kCols), expanded = x;
    HcCollapse(x.data(), kCols, w.data(), kStreams, kCols, collapsed.data());
    HcExpand(y.data(), coefficients, kStreams, kCols, expanded.data(), kCols);
    for (int64_t cut = 0; cut <= kCols; ++cut) {
      std::vector<T> collapsed_parts(kCols), expanded_parts = x;
      HcCollapse(x.data(), kCols, w.data(), kStreams, cut, collapsed_parts.data());
      HcCollapse(x.data() + cut, kCols, w.data(), kStreams, kCols - cut, collapsed_parts.data() + cut);
      HcExpand(y.data(), coefficients, kStreams, cut, expanded_parts.data(), kCols);
      HcExpand(y.data() + cut, coefficients, kStreams, kCols - cut, expanded_parts.data() + cut, kCols);
      ASSERT_EQ(std::memcmp(collapsed_parts.data(), collapsed.data(), kCols * sizeof(T)), 0) << "cut at " << cut;
      ASSERT_EQ(std::memcmp(expanded_parts.data(), expanded.data(), expanded.size() * sizeof(T)), 0) << "cut at " << cut;
    }
  });
}

}  // namespace
}  // namespace tessera
