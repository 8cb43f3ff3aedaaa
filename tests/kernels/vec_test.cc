// The vector vocabulary of kernels/vec.h and codes-inl.h on every tier, through the probes of vec_tier.cc.
#include <gtest/gtest.h>

#include <functional>

#include "support/kernel_inputs.h"

namespace tessera {

TSR_DECLARE_TIERS(
    int ProbeLanes() noexcept;
    void ProbeCopy(const float* x, int count, float* y) noexcept;
    void ProbeCopy(const bf16* x, int count, bf16* y) noexcept;
    void ProbeLoadTail(const float* x, int count, float* lanes) noexcept;
    void ProbeLoadTail(const bf16* x, int count, float* lanes) noexcept;
    void ProbeBytesTail(const uint8_t* x, int count, float* lanes) noexcept;
    void ProbeApply(int op, const float* const* abc, int64_t count, float* y) noexcept;
    void ProbeNarrow(const float* x, int64_t count, bf16* y) noexcept;
    float ProbeReduceAdd(const float* lanes) noexcept;
    float ProbeReduceMax(const float* lanes) noexcept;
    uint32_t ProbeMaskGreaterEqual(const float* a, const float* b) noexcept;
    template <class T> void ProbeEvenOdd(const T* x, int64_t pairs, T* even, T* odd, T* back) noexcept;
    template <class T> void ProbePair(const T* x, T* back, float* sum) noexcept;
    void ProbeEncode(bool four_bits, const float* x, int64_t count, uint8_t* codes) noexcept;
    void ProbeDecode(bool four_bits, const uint8_t* codes, int64_t count, float* x) noexcept;)

namespace testing {
namespace {

enum Op { kAdd, kSubtract, kMultiply, kDivide, kMulAdd, kMin, kMax, kSqrt, kAbs, kRoundNearest, kSelectLess, kScaleByPowerOfTwo,
          kRoundToBf16, kExp, kSigmoid };

std::vector<float> Apply(Op op, const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& c) {
  std::vector<float> y(a.size());
  const float* const abc[3] = {a.data(), b.data(), c.data()};
  TSR_DISPATCH(ProbeApply(static_cast<int>(op), abc, static_cast<int64_t>(a.size()), y.data()));
  return y;
}
std::vector<float> Apply(Op op, const std::vector<float>& a) { return Apply(op, a, a, a); }

template <class T>
void CheckTails() {
  const int lanes = TSR_DISPATCH(ProbeLanes());
  for (int count = 0; count <= lanes; ++count)
    for (int64_t shift = 0; shift < 4; ++shift) {
      const std::vector<T> x = ToT<T>(RandomFloats(count, 3));
      Guarded<T> in(x, shift), out(count, shift + 1);
      TSR_DISPATCH(ProbeCopy(in.data(), count, out.data()));
      EXPECT_TRUE(SameBits(out.Values(), x)) << "count " << count;
      EXPECT_TRUE(out.GuardsIntact()) << "count " << count;
      std::vector<float> got(static_cast<size_t>(lanes), NAN), want = ToFloats(x);
      want.resize(static_cast<size_t>(lanes), 0.0f);
      TSR_DISPATCH(ProbeLoadTail(in.data(), count, got.data()));
      EXPECT_TRUE(SameBits(got, want)) << "count " << count;
    }
}

TEST(VecTest, TailsTouchNothingBeyondAndReadZeros) {
  ForEachTier([] {
    CheckTails<float>();
    CheckTails<bf16>();
    const int lanes = TSR_DISPATCH(ProbeLanes());
    for (int count = 0; count <= lanes; ++count) {
      std::vector<uint8_t> x;
      for (int i = 0; i < count; ++i) x.push_back(static_cast<uint8_t>(200 + i));
      std::vector<float> got(static_cast<size_t>(lanes), NAN), want(x.begin(), x.end());
      want.resize(static_cast<size_t>(lanes), 0.0f);
      TSR_DISPATCH(ProbeBytesTail(x.data(), count, got.data()));
      EXPECT_EQ(got, want);
    }
  });
}

// Every upper half (all signs, exponents, bf16 mantissas, NaNs) with the lower halves where rounding turns.
TEST(VecTest, NarrowingEqualsTheScalarDefinition) {
  std::vector<float> x;
  for (uint32_t low : {0x0000u, 0x0001u, 0x4000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
    for (uint32_t high = 0; high < 0x10000; ++high) x.push_back(BitsToFloat(high << 16 | low));
  const std::vector<bf16> want = ToT<bf16>(x);
  ForEachTier([&] {
    std::vector<bf16> y(x.size());
    TSR_DISPATCH(ProbeNarrow(x.data(), static_cast<int64_t>(x.size()), y.data()));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, want[i].bits) << std::hex << FloatToBits(x[i]);
    EXPECT_TRUE(SameBits(Apply(kRoundToBf16, x), ToFloats(want)));
  });
}

// IEEE gives these one result each; the edges are signed zeros, subnormals, infinities and values whose products overflow.
TEST(VecTest, ArithmeticHasTheScalarBits) {
  std::vector<float> a, b, c;
  const std::vector<float> edges = {0.0f, -0.0f, 1.0f, -1.5f, 0x1p-140f, -0x1p-149f, 3e38f, -3e38f, INFINITY, 0x1p-126f, 2.5f, 1e-20f};
  for (float x : edges)
    for (float y : edges) a.push_back(x), b.push_back(y), c.push_back(x - 1);
  const std::vector<float> more = RandomFloats(1000, 1);
  for (size_t i = 0; i < more.size(); ++i) a.push_back(more[i]), b.push_back(more[more.size() - 1 - i]), c.push_back(more[i] * 3);
  const std::vector<std::pair<Op, std::function<float(float, float, float)>>> definitions = {
      {kAdd, [](float x, float y, float) { return x + y; }},
      {kSubtract, [](float x, float y, float) { return x - y; }},
      {kMultiply, [](float x, float y, float) { return x * y; }},
      {kDivide, [](float x, float y, float) { return x / y; }},
      {kMin, [](float x, float y, float) { return x < y ? x : y; }},
      {kMax, [](float x, float y, float) { return x > y ? x : y; }},
      {kSqrt, [](float x, float, float) { return std::sqrt(x); }},
      {kAbs, [](float x, float, float) { return std::fabs(x); }},
      {kRoundNearest, [](float x, float, float) { return std::nearbyint(x); }},
      {kSelectLess, [](float x, float y, float z) { return x < y ? z : x; }}};
  ForEachTier([&] {
    for (const auto& [op, definition] : definitions) {
      const std::vector<float> got = Apply(op, a, b, c);
      for (size_t i = 0; i < a.size(); ++i) {
        const float want = definition(a[i], b[i], c[i]);
        if (std::isnan(want)) ASSERT_TRUE(std::isnan(got[i])) << "op " << op << " of " << a[i] << ", " << b[i];
        else ASSERT_EQ(FloatToBits(got[i]), FloatToBits(want)) << "op " << op << " of " << a[i] << ", " << b[i];
      }
    }
    // One rounding where the tier has fma, two on the scalar one.
    const std::vector<float> got = Apply(kMulAdd, more, more, a);
    for (size_t i = 0; i < more.size(); ++i)
      ASSERT_EQ(got[i], ActiveTier() == Tier::kScalar ? more[i] * more[i] + a[i] : std::fma(more[i], more[i], a[i]));
  });
}

TEST(VecTest, MinAndMaxGiveTheSecondOperandForNan) {
  ForEachTier([] {
    const std::vector<float> x = {NAN, 1, NAN}, y = {2, NAN, NAN};
    for (Op op : {kMin, kMax}) {
      const std::vector<float> got = Apply(op, x, y, y);
      EXPECT_EQ(got[0], 2);
      EXPECT_TRUE(std::isnan(got[1]) && std::isnan(got[2]));
    }
    EXPECT_EQ(Apply(kSelectLess, {NAN, 1}, {1, NAN}, {5, 5})[1], 1);
  });
}

TEST(VecTest, ScalesByEveryPowerOfTwo) {
  ForEachTier([] {
    std::vector<float> x, n;
    for (int k = -126; k <= 127; ++k) x.push_back(1.25f), n.push_back(static_cast<float>(k));
    const std::vector<float> got = Apply(kScaleByPowerOfTwo, x, n, n);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(got[i], std::ldexp(1.25f, static_cast<int>(n[i])));
  });
}

TEST(VecTest, ReductionsTakeEveryLaneOnce) {
  ForEachTier([] {
    const int lanes = TSR_DISPATCH(ProbeLanes());
    for (int lane = 0; lane < lanes; ++lane) {
      std::vector<float> x(static_cast<size_t>(lanes), -2.0f), zeros(static_cast<size_t>(lanes), 0.0f);
      x[static_cast<size_t>(lane)] = 5;
      zeros[static_cast<size_t>(lane)] = 3;
      EXPECT_EQ(TSR_DISPATCH(ProbeReduceMax(x.data())), 5);
      EXPECT_EQ(TSR_DISPATCH(ProbeReduceAdd(zeros.data())), 3);
      EXPECT_EQ(TSR_DISPATCH(ProbeMaskGreaterEqual(x.data(), zeros.data())), 1u << lane);
      zeros[static_cast<size_t>(lane)] = NAN;
      EXPECT_EQ(TSR_DISPATCH(ProbeMaskGreaterEqual(x.data(), zeros.data())), 0u);
    }
    // The tree of vec.h: halves, then quarters, and so on.
    std::vector<float> tree = RandomFloats(lanes, 8);
    const std::vector<float> x = tree;
    for (size_t half = tree.size() / 2; half >= 1; half /= 2)
      for (size_t i = 0; i < half; ++i) tree[i] += tree[i + half];
    EXPECT_EQ(TSR_DISPATCH(ProbeReduceAdd(x.data())), tree[0]);
  });
}

template <class T>
void CheckEvenOdd(int64_t pairs) {
  const std::vector<T> x = ToT<T>(RandomFloats(2 * pairs, static_cast<uint64_t>(pairs)));
  Guarded<T> in(x, 1), even(pairs, 2), odd(pairs, 3), back(2 * pairs, 1);
  TSR_DISPATCH(ProbeEvenOdd(in.data(), pairs, even.data(), odd.data(), back.data()));
  for (size_t i = 0; i < static_cast<size_t>(pairs); ++i) {
    EXPECT_EQ(ToFloat(even.Values()[i]), ToFloat(x[2 * i]));
    EXPECT_EQ(ToFloat(odd.Values()[i]), ToFloat(x[2 * i + 1]));
  }
  EXPECT_TRUE(SameBits(back.Values(), x));
  EXPECT_TRUE(even.GuardsIntact() && odd.GuardsIntact() && back.GuardsIntact());
}

template <class T>
void CheckPair() {
  const int lanes = TSR_DISPATCH(ProbeLanes());
  std::vector<T> x;
  for (int i = 0; i < 2 * lanes; ++i) x.push_back(FromFloat<T>(static_cast<float>(i) - 3));
  Guarded<T> in(x, 1), back(2 * lanes, 1);
  float sum = 0;
  TSR_DISPATCH(ProbePair(in.data(), back.data(), &sum));
  EXPECT_TRUE(SameBits(back.Values(), x));
  EXPECT_EQ(sum, static_cast<float>(lanes * (2 * lanes - 1) - 6 * lanes));
  EXPECT_TRUE(back.GuardsIntact());
}

TEST(VecTest, PairsComeApartAndTogether) {
  ForEachTier([] {
    for (int64_t pairs = 0; pairs <= kTailMax; ++pairs) {
      CheckEvenOdd<float>(pairs);
      CheckEvenOdd<bf16>(pairs);
    }
    CheckPair<float>();
    CheckPair<bf16>();
  });
}

TEST(VecTest, ExpIsWithinTwoUlp) {
  std::vector<float> x;
  for (int i = 0; i < 1000000; ++i) x.push_back(-87.3f + static_cast<float>(i) * (176.0228f / 1000000));
  for (int e = -40; e < 0; ++e) x.push_back(std::ldexp(1.1f, e)), x.push_back(-std::ldexp(1.1f, e));
  x.insert(x.end(), {88.7228f, 0.0f, -0.0f});
  ForEachTier([&] {
    const std::vector<float> y = Apply(kExp, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(static_cast<double>(x[i]));
      const double ulp = std::ldexp(1.0, std::ilogb(want) - 23);
      const double error = std::fabs(y[i] - want) / ulp;
      ASSERT_LE(error, 2.0) << "x " << x[i];
      worst = error > worst ? error : worst;
    }
    RecordProperty("worst_ulp_" + std::string(TierName(ActiveTier())), std::to_string(worst));
    EXPECT_EQ(y[x.size() - 1], 1.0f);
    EXPECT_EQ(y[x.size() - 2], 1.0f);
  });
}

TEST(VecTest, ExpAtTheEnds) {
  ForEachTier([] {
    const std::vector<float> y = Apply(kExp, {-87.4f, -1e30f, -INFINITY, 88.73f, 1e30f, INFINITY, NAN, -NAN});
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(y[i], 0.0f);
    for (size_t i = 3; i < 6; ++i) EXPECT_EQ(y[i], INFINITY);
    EXPECT_TRUE(std::isnan(y[6]) && std::isnan(y[7]));
  });
}

// Exp's 2 ulp (4 units), then a sum and a quotient; below -88.72 it is 0 where the exact value is under 2^-127.
TEST(VecTest, SigmoidIsWithinItsBound) {
  std::vector<float> x;
  for (float v = -100; v < 100; v += 0.0317f) x.push_back(v);
  ForEachTier([&] {
    const std::vector<float> y = Apply(kSigmoid, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = 1 / (1 + std::exp(-static_cast<double>(x[i])));
      ASSERT_LE(std::fabs(y[i] - want), want * 6 * 0x1p-24 * 1.01 + 0x1p-127) << "x " << x[i];
    }
    const std::vector<float> ends = Apply(kSigmoid, {-INFINITY, INFINITY, NAN});
    EXPECT_EQ(ends[0], 0.0f);
    EXPECT_EQ(ends[1], 1.0f);
    EXPECT_TRUE(std::isnan(ends[2]));
  });
}

TEST(VecTest, EncodersEqualTheScalarDefinitionsForAllFiniteUpperHalves) {
  std::vector<float> x;
  for (uint32_t low : {0x0000u, 0x0001u, 0x8000u, 0xffffu})
    for (uint32_t high = 0; high < 0x10000; ++high)
      if ((high & 0x7f80u) != 0x7f80u) x.push_back(BitsToFloat(high << 16 | low));
  ForEachTier([&] {
    for (bool four_bits : {false, true}) {
      std::vector<uint8_t> codes(x.size());
      TSR_DISPATCH(ProbeEncode(four_bits, x.data(), static_cast<int64_t>(x.size()), codes.data()));
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(codes[i], four_bits ? FloatToE2m1(x[i]) : FloatToE4m3(x[i])) << x[i];
    }
  });
}

TEST(VecTest, DecodersEqualTheScalarDefinitionsForAllCodes) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
  ForEachTier([&] {
    for (bool four_bits : {false, true}) {
      std::vector<float> x(256);
      TSR_DISPATCH(ProbeDecode(four_bits, codes.data(), four_bits ? 16 : 256, x.data()));
      for (size_t i = 0; i < (four_bits ? 16u : 256u); ++i)
        EXPECT_EQ(FloatToBits(x[i]), FloatToBits(four_bits ? E2m1ToFloat(codes[i]) : E4m3ToFloat(codes[i]))) << "code " << i;
    }
  });
}

}  // namespace
}  // namespace testing
}  // namespace tessera
