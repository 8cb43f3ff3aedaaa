#include "kernels/rope.h"

#include <gtest/gtest.h>

#include "reference/rope_ref.h"
#include "support/kernel_inputs.h"
#include "support/tensors.h"

namespace tessera::testing {
namespace {

RopeParameters Main() { return {.rope_dims = 64, .theta = 10000}; }
RopeParameters Compress(int64_t rope_dims) {
  return {.rope_dims = rope_dims, .theta = 160000, .yarn = true, .factor = 16, .beta_fast = 32, .beta_slow = 1,
          .original_max_position_embeddings = 65536};
}

TEST(RopeTest, FrequenciesEqualTheGoldenOnes) {
  const auto golden = ReadTensors("tests/golden/formats/formats.safetensors");
  EXPECT_EQ(RopeFrequencies(Main()), golden.at("rope.main.freqs").As<float>());
  EXPECT_EQ(RopeFrequencies(Compress(64)), golden.at("rope.compress.freqs").As<float>());
  EXPECT_EQ(RopeFrequencies(Compress(32)), golden.at("rope.compress.freqs_R32").As<float>());
}

TEST(RopeTest, CosAndSinEqualTheGoldenOnes) {
  const auto golden = ReadTensors("tests/golden/formats/formats.safetensors");
  const std::vector<int32_t> positions = golden.at("rope.positions").As<int32_t>();
  ASSERT_EQ(positions.size(), 13u);
  for (const auto& [name, parameters] : {std::pair<std::string, RopeParameters>{"main", Main()}, {"compress", Compress(64)}}) {
    const std::vector<float> frequencies = RopeFrequencies(parameters);
    const std::vector<float> want_cos = golden.at("rope." + name + ".cos").As<float>();
    const std::vector<float> want_sin = golden.at("rope." + name + ".sin").As<float>();
    for (size_t row = 0; row < positions.size(); ++row) {
      float cos[32], sin[32];
      RopeCosSin(positions[row], frequencies.data(), 64, cos, sin);
      for (size_t i = 0; i < 32; ++i) {
        EXPECT_EQ(cos[i], want_cos[row * 32 + i]) << name << " position " << positions[row] << " pair " << i;
        EXPECT_EQ(sin[i], want_sin[row * 32 + i]) << name << " position " << positions[row] << " pair " << i;
      }
    }
  }
}

// The golden values are exact rotations by the fp32 angle, rounded once. Ours have cos and sin rounded, each product rounded, then the sum:
// two units of each product and one of the result (which the products' sum bounds), and the golden value's own unit.
TEST(RopeTest, RotationAgreesWithTheGoldenOne) {
  const auto golden = ReadTensors("tests/golden/formats/formats.safetensors");
  const std::vector<int32_t> positions = golden.at("rope.positions").As<int32_t>();
  const std::vector<float> in = golden.at("rope.apply.in").As<float>();
  ForEachTier([&] {
    for (const std::string kind : {"main", "compress", "main_inverse"}) {
      const std::vector<float> frequencies = RopeFrequencies(kind == "compress" ? Compress(64) : Main());
      const std::vector<float> want = golden.at("rope.apply." + kind).As<float>();
      for (size_t row = 0; row < positions.size(); ++row) {
        float cos[32], sin[32];
        RopeCosSin(positions[row], frequencies.data(), 64, cos, sin);
        std::vector<float> x(in.begin() + static_cast<int64_t>(row * 96), in.begin() + static_cast<int64_t>(row * 96 + 96));
        RotateInterleaved(x.data() + 32, cos, sin, 64, kind == "main_inverse");
        for (size_t i = 0; i < 32; ++i) EXPECT_EQ(x[i], want[row * 96 + i]);
        for (size_t i = 0; i < 32; ++i) {
          const double a = std::fabs(in[row * 96 + 32 + 2 * i]), b = std::fabs(in[row * 96 + 33 + 2 * i]);
          const double c = std::fabs(cos[i]), s = std::fabs(sin[i]);
          EXPECT_NEAR(x[32 + 2 * i], want[row * 96 + 32 + 2 * i], 4 * 0x1p-24 * (a * c + b * s)) << kind << " row " << row;
          EXPECT_NEAR(x[33 + 2 * i], want[row * 96 + 33 + 2 * i], 4 * 0x1p-24 * (a * s + b * c)) << kind << " row " << row;
        }
      }
    }
  });
}

template <class T>
void CheckRotation(int64_t dims) {
  const std::vector<T> x = ToT<T>(RandomFloats(dims, static_cast<uint64_t>(dims)));
  const std::vector<float> cos = RandomFloats(dims / 2, 2), sin = RandomFloats(dims / 2, 3);
  for (bool inverse : {false, true}) {
    Guarded<T> v(x, dims % 3);
    Guarded<float> c(cos, 1), s(sin, 3);
    RotateInterleaved(v.data(), c.data(), s.data(), dims, inverse);
    EXPECT_TRUE(SameBits(v.Values(), RotateInterleavedRef(x, cos, sin, inverse))) << "dims " << dims;
    EXPECT_TRUE(v.GuardsIntact());
  }
}

TEST(RopeTest, RotationHasTheTwinsBitsOnEveryTierAndTail) {
  ForEachTier([] {
    for (int64_t dims = 0; dims <= 2 * kTailMax; dims += 2) {
      CheckRotation<float>(dims);
      CheckRotation<bf16>(dims);
    }
  });
}

}  // namespace
}  // namespace tessera::testing
