#include "kernels/norm.h"

#include <gtest/gtest.h>

#include "reference/norm_ref.h"
#include "support/kernel_inputs.h"

namespace tessera::testing {
namespace {

std::vector<int64_t> Lengths() {
  std::vector<int64_t> lengths;
  for (int64_t n = 1; n <= kTailMax; ++n) lengths.push_back(n);
  for (int64_t n : {63, 64, 65, 128, 512, 1023, 1024, 1025, 1100, 5120, 20480}) lengths.push_back(n);
  return lengths;
}

template <class T>
void ExpectClose(const std::vector<T>& got, const std::vector<double>& want, double relative) {
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_LE(std::fabs(ToFloat(got[i]) - want[i]), std::fabs(want[i]) * (relative + kRounding<T>) * 1.01 + kSubnormalUnit<T>)
        << "element " << i << " of " << want.size();
}

template <class T>
void CheckRmsNorm(int64_t n, float eps, int exponent) {
  const std::vector<T> x = ToT<T>(RandomFloats(n, static_cast<uint64_t>(n), exponent));
  const std::vector<bf16> weight = ToT<bf16>(RandomFloats(n, 77));
  const std::vector<double> want = RmsNormRef(ToFloats(x), ToFloats(weight), eps);
  Guarded<T> in(x, n % 3), out(n, n % 5);
  RmsNorm(in.data(), weight.data(), eps, n, out.data());
  ExpectClose(out.Values(), want, RmsNormErrorRef(n));
  EXPECT_TRUE(out.GuardsIntact());

  const double squares = SumOfSquaresRef(ToFloats(x));
  EXPECT_LE(std::fabs(SumOfSquares(in.data(), n) - squares), squares * SumErrorRef(n));
  const std::vector<float> x_floats = ToFloats(x);
  Guarded<T> from_float(n, 1);
  RmsNormFromFloat(x_floats.data(), weight.data(), eps, n, from_float.data());
  EXPECT_TRUE(SameBits(from_float.Values(), out.Values()));
  RmsNorm(in.data(), weight.data(), eps, n, in.data());  // in place
  EXPECT_TRUE(SameBits(in.Values(), out.Values()));
}

TEST(NormTest, RmsNormIsWithinItsBound) {
  ForEachTier([] {
    for (int64_t n : Lengths()) {
      CheckRmsNorm<float>(n, 1e-6f, 0);
      CheckRmsNorm<bf16>(n, 1e-6f, 0);
      CheckRmsNorm<float>(n, 1e-20f, 6);
      CheckRmsNorm<bf16>(n, 1e-20f, -20);
    }
  });
}

// 2^-33 squares to 1.4e-20, next to V4.1's eps; 2^-70 squares to a subnormal, which must not disturb eps; all zeros stay zeros.
TEST(NormTest, TinyInputsMeetTinyEps) {
  ForEachTier([] {
    CheckRmsNorm<float>(512, 1e-20f, -33);
    CheckRmsNorm<bf16>(512, 1e-20f, -33);
    const std::vector<float> x(64, 0x1p-70f);
    const std::vector<bf16> weight(64, ToBf16(1.0f));
    std::vector<float> y(64);
    RmsNorm(x.data(), weight.data(), 1e-20f, 64, y.data());
    for (float v : y) EXPECT_NEAR(v, 0x1p-70f * 1e10, 0x1p-70f * 1e10 * 6 * 0x1p-24);
    const std::vector<float> zeros(64, 0.0f);
    RmsNorm(zeros.data(), weight.data(), 1e-20f, 64, y.data());
    EXPECT_TRUE(SameBits(y, zeros));
  });
}

TEST(NormTest, HeadNormInFp32IsPlain) {
  ForEachTier([] {
    for (int64_t n : Lengths()) {
      const std::vector<float> x = RandomFloats(n, static_cast<uint64_t>(n));
      Guarded<float> in(x, n % 3);
      HeadNorm(in.data(), 1e-6f, n);
      ExpectClose(in.Values(), RmsNormRef(x, std::vector<float>(x.size(), 1.0f), 1e-6f), RmsNormErrorRef(n));
      EXPECT_TRUE(in.GuardsIntact());
    }
  });
}

// Every step of the chain is exact bf16 except the fp32 sum, whose error can move the mean across one rounding border: the result must be
// the chain's for the mean at one end of the sum's error interval.
TEST(NormTest, HeadNormInBf16RoundsAtEveryStep) {
  ForEachTier([] {
    for (int64_t n : Lengths())
      for (int exponent : {0, -9, 7}) {
        const std::vector<bf16> x = ToT<bf16>(RandomFloats(n, static_cast<uint64_t>(n + 1000), exponent));
        const double mean = HeadNormMeanRef(ToFloats(x)), error = SumErrorRef(n) + 0x1p-24;
        Guarded<bf16> in(x, n % 5);
        HeadNorm(in.data(), 1e-6f, n);
        EXPECT_TRUE(SameBits(in.Values(), HeadNormRef(ToFloats(x), mean * (1 - error), 1e-6f)) ||
                    SameBits(in.Values(), HeadNormRef(ToFloats(x), mean * (1 + error), 1e-6f)))
            << "n " << n << " exponent " << exponent;
        EXPECT_TRUE(in.GuardsIntact());
      }
  });
}

TEST(NormTest, SumDependsOnTheRowAloneNotOnItsAddress) {
  ForEachTier([] {
    const std::vector<float> x = RandomFloats(5120, 1);
    Guarded<float> first(x, 0);
    const float want = SumOfSquares(first.data(), 5120);
    for (int64_t shift = 1; shift < 16; ++shift) {
      Guarded<float> moved(x, shift);
      EXPECT_EQ(SumOfSquares(moved.data(), 5120), want);
    }
  });
}

}  // namespace
}  // namespace tessera::testing
