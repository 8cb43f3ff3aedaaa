#include "kernels/stream_gate.h"

#include <gtest/gtest.h>

#include "reference/norm_ref.h"
#include "reference/stream_gate_ref.h"
#include "support/kernel_inputs.h"

namespace tessera::testing {
namespace {

// The gate must lie between the twin's gates at both ends of the dot product's error interval. That error, relative to the sum of absolute
// products: the sum's own, two products, the two norms' (RmsNormErrorRef each) and four more roundings; then sigmoid rounds with 2 ulp of
// Exp, the root's half ulp (the gate's slope in it is below 1/4 of the gate's size at most), a sum and a quotient: 8 units.
void ExpectGate(float got, const StreamDotRef& dot, int64_t hidden) {
  const double error = dot.magnitude * (SumErrorRef(hidden) + 2 * RmsNormErrorRef(hidden) + 6 * 0x1p-24);
  EXPECT_GE(got, StreamGateRef(dot.dot - error) * (1 - 8 * 0x1p-24)) << "hidden " << hidden;
  EXPECT_LE(got, StreamGateRef(dot.dot + error) * (1 + 8 * 0x1p-24)) << "hidden " << hidden;
}

template <class T>
void CheckStreamGate(int64_t hidden, int streams, int exponent) {
  const uint64_t seed = static_cast<uint64_t>(hidden * 10);
  const std::vector<T> x = ToT<T>(RandomFloats(streams * hidden, seed, exponent));
  const std::vector<T> kv = ToT<T>(RandomFloats((streams + 1) * hidden, seed + 1));
  const std::vector<float> qk_weight = RandomFloats(streams * hidden, seed + 2);
  Guarded<T> row(x, hidden % 3), in(kv, hidden % 5);
  Guarded<float> weight(qk_weight, 1), gates(streams, 1);
  StreamGate(row.data(), in.data(), weight.data(), {.hc_mult = streams, .hidden = hidden, .eps = 1e-20f}, gates.data());
  const std::vector<float> x_floats = ToFloats(x), kv_floats = ToFloats(kv);
  const std::vector<T> got = row.Values();
  for (int s = 0; s < streams; ++s) {
    const float gate = gates.Values()[static_cast<size_t>(s)];
    const int64_t begin = s * hidden;
    ExpectGate(gate, StreamDot(x_floats.data() + begin, kv_floats.data() + begin, qk_weight.data() + begin, hidden, 1e-20), hidden);
    // The addition takes the gate as it is: a product and a sum in fp32, one rounding to T.
    for (int64_t i = 0; i < hidden; ++i) {
      const float product = gate * kv_floats[static_cast<size_t>(streams * hidden + i)];
      const T want = FromFloat<T>(x_floats[static_cast<size_t>(begin + i)] + product);
      ASSERT_EQ(ToFloat(got[static_cast<size_t>(begin + i)]), ToFloat(want)) << "stream " << s << " column " << i << " of " << hidden;
    }
  }
  EXPECT_TRUE(row.GuardsIntact() && gates.GuardsIntact());
}

TEST(StreamGateTest, IsWithinItsBoundOnEveryTierAndTail) {
  ForEachTier([] {
    for (int64_t hidden = 1; hidden <= kTailMax; ++hidden) {
      CheckStreamGate<float>(hidden, 4, 0);
      CheckStreamGate<bf16>(hidden, 2, 0);
    }
    CheckStreamGate<float>(1025, 4, -30);
    CheckStreamGate<bf16>(5120, 4, 5);
    CheckStreamGate<bf16>(5120, 1, -33);
  });
}

// A stream of zeros gives dot = 0, so gate = sigmoid(+0.001); a key of zeros likewise.
TEST(StreamGateTest, ZerosOpenTheGateHalf) {
  ForEachTier([] {
    std::vector<float> x(64, 0.0f), kv(192, 0.0f), weight(128, 1.0f), gates(2);
    StreamGate(x.data(), kv.data(), weight.data(), {.hc_mult = 2, .hidden = 32, .eps = 1e-20f}, gates.data());
    for (float gate : gates) EXPECT_NEAR(gate, 1 / (1 + std::exp(-0.001)), 4 * 0x1p-24);
    EXPECT_TRUE(SameBits(x, std::vector<float>(64, 0.0f)));
  });
}

}  // namespace
}  // namespace tessera::testing
