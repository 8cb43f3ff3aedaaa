#include "kernels/swiglu.h"

#include <gtest/gtest.h>

#include "reference/swiglu_ref.h"
#include "support/kernel_inputs.h"
#include "support/tensors.h"

namespace tessera::testing {
namespace {

// Relative: 2 ulp (4 units) of Exp, then sum, quotient and two products at one unit each. Absolute: below g = -88.72 the exponential
// overflows and silu becomes -0 where the exact value is g e^g, at most 89 * 2^-127.
template <class T>
void ExpectSwiGlu(float got, float g, float u, float limit, float weight) {
  const double want = SwiGluRef(g, u, limit, weight);
  const double flushed = std::fabs(weight * u) * 89 * 0x1p-127;
  ASSERT_LE(std::fabs(got - want), std::fabs(want) * (8 * 0x1p-24 + kRounding<T>) * 1.01 + flushed + kSubnormalUnit<T>)
      << "g " << g << " u " << u << " got " << got << " want " << want;
}

template <class T>
void CheckSwiGlu(int64_t n, float limit, float weight) {
  std::vector<float> g_values = RandomFloats(n, static_cast<uint64_t>(n), 3), u_values = RandomFloats(n, static_cast<uint64_t>(n + 1), 3);
  for (int64_t i = 0; i < n; i += 7) g_values[static_cast<size_t>(i)] = -static_cast<float>(i) / 2;  // down to where e^-g overflows
  const std::vector<T> g = ToT<T>(g_values), u = ToT<T>(u_values);
  Guarded<T> gate(g, n % 3), up(u, n % 2), h(n, n % 5);
  SwiGlu(gate.data(), up.data(), n, limit, weight, h.data());
  for (size_t i = 0; i < g.size(); ++i) ExpectSwiGlu<T>(ToFloat(h.Values()[i]), ToFloat(g[i]), ToFloat(u[i]), limit, weight);
  EXPECT_TRUE(h.GuardsIntact());
  Guarded<T> over_up(u, 1);
  SwiGlu(gate.data(), over_up.data(), n, limit, weight, over_up.data());
  EXPECT_TRUE(SameBits(over_up.Values(), h.Values()));
  SwiGlu(gate.data(), up.data(), n, limit, weight, gate.data());
  EXPECT_TRUE(SameBits(gate.Values(), h.Values()));
}

TEST(SwiGluTest, IsWithinItsBoundOnEveryTierAndTail) {
  ForEachTier([] {
    for (int64_t n = 0; n <= kTailMax; ++n) {
      CheckSwiGlu<float>(n, 10, 1);
      CheckSwiGlu<bf16>(n, 10, 0.3721f);
    }
    CheckSwiGlu<float>(300, 10, 2.5f);
    CheckSwiGlu<bf16>(300, 1, 1);
  });
}

TEST(SwiGluTest, ClampsTheGateFromAboveOnlyAndLetsNanThrough) {
  ForEachTier([] {
    const std::vector<float> g = {50, -50, 50, NAN, 1, INFINITY, -INFINITY}, u = {50, 50, -50, 1, NAN, 1, 0};
    std::vector<float> h(g.size());
    SwiGlu(g.data(), u.data(), static_cast<int64_t>(g.size()), 10, 1, h.data());
    EXPECT_NEAR(h[0], 10 * SwiGluRef(10, 1, 10, 1), 1e-4);
    EXPECT_NEAR(h[1], SwiGluRef(-50, 50, 10, 1), 1e-24);
    EXPECT_EQ(h[2], -h[0]);
    EXPECT_TRUE(std::isnan(h[3]));
    EXPECT_TRUE(std::isnan(h[4]));
    EXPECT_NEAR(h[5], SwiGluRef(10, 1, 10, 1), 1e-5);
    EXPECT_TRUE(std::isnan(h[6]));  // -inf / inf
  });
}

TEST(SwiGluTest, SqrtSoftplusIsWithinFourUlp) {
  std::vector<float> x;
  for (float v = -87.2f; v < 40; v += 0.0137f) x.push_back(v);
  for (int e = -30; e < 7; ++e) x.push_back(std::ldexp(1.0f, e)), x.push_back(-std::ldexp(1.0f, e));
  x.insert(x.end(), {0.0f, -0.0f, 20.0f, std::nextafter(20.0f, 21.0f), 1e30f, INFINITY});
  ForEachTier([&] {
    std::vector<float> y(x.size());
    SqrtSoftplus(x.data(), static_cast<int64_t>(x.size()), y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = SqrtSoftplusRef(x[i]);
      if (std::isinf(want)) EXPECT_EQ(y[i], INFINITY);
      else ASSERT_LE(std::fabs(y[i] - want), want * 4 * 0x1p-23) << "x " << x[i];
    }
  });
}

TEST(SwiGluTest, SqrtSoftplusAtTheEnds) {
  ForEachTier([] {
    const std::vector<float> x = {-87.4f, -1e30f, -INFINITY, NAN};
    std::vector<float> y(x.size());
    SqrtSoftplus(x.data(), static_cast<int64_t>(x.size()), y.data());
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(y[i] >= 0 && y[i] < 0x1p-62f) << x[i];
    EXPECT_TRUE(std::isnan(y[3]));
    for (int64_t n = 0; n <= kTailMax; ++n) {
      const std::vector<float> v = RandomFloats(n, 4, 2);
      Guarded<float> in(v, n % 3), out(n, n % 5);
      SqrtSoftplus(in.data(), n, out.data());
      for (size_t i = 0; i < v.size(); ++i) EXPECT_NEAR(out.Values()[i], SqrtSoftplusRef(v[i]), SqrtSoftplusRef(v[i]) * 4 * 0x1p-23);
      EXPECT_TRUE(out.GuardsIntact());
    }
  });
}

TEST(SwiGluTest, SqrtSoftplusAgreesWithTheGoldenValues) {
  const auto golden = ReadTensors("tests/golden/formats/formats.safetensors");
  const std::vector<float> x = golden.at("sqrtsoftplus.in").As<float>(), want = golden.at("sqrtsoftplus.out").As<float>();
  ASSERT_EQ(x.size(), 32u);
  ForEachTier([&] {
    std::vector<float> y(x.size());
    SqrtSoftplus(x.data(), static_cast<int64_t>(x.size()), y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double flushed = want[i] < 0x1p-62f ? 0x1p-62 : 0;
      EXPECT_LE(std::fabs(y[i] - want[i]), want[i] * 4.5 * 0x1p-23 + flushed) << "x " << x[i];  // the golden value is rounded itself
    }
  });
}

}  // namespace
}  // namespace tessera::testing
