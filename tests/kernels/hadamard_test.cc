#include "kernels/hadamard.h"

#include <gtest/gtest.h>

#include "reference/hadamard_ref.h"
#include "support/kernel_inputs.h"
#include "support/tensors.h"

namespace tessera::testing {
namespace {

// log2(n) levels of additions, each with one unit of a partial sum that sum|x| bounds, then the scale's rounding and the product's; and
// one rounding to T.
template <class T>
void CheckHadamard(int64_t n) {
  const std::vector<T> x = ToT<T>(RandomFloats(n, static_cast<uint64_t>(n), static_cast<int>(n % 5)));
  const std::vector<double> want = HadamardRef(ToFloats(x));
  double norm1 = 0;
  for (T v : x) norm1 += std::fabs(ToFloat(v));
  const double sums = (std::log2(static_cast<double>(n)) + 2) * 0x1p-24 * norm1 / std::sqrt(static_cast<double>(n));
  Guarded<T> row(x, n % 3);
  Hadamard(row.data(), n);
  const std::vector<T> got = row.Values();
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_LE(std::fabs(ToFloat(got[i]) - want[i]), sums + std::fabs(want[i]) * kRounding<T> * 1.01) << "n " << n << " element " << i;
  EXPECT_TRUE(row.GuardsIntact());
}

TEST(HadamardTest, IsWithinItsBoundForEverySize) {
  ForEachTier([] {
    for (int64_t n = 1; n <= 1024; n *= 2) {
      CheckHadamard<float>(n);
      CheckHadamard<bf16>(n);
    }
  });
}

TEST(HadamardTest, AllTiersGiveEqualBits) {
  for (int64_t n = 1; n <= 1024; n *= 2) {
    std::vector<std::vector<float>> results;
    ForEachTier([&] {
      std::vector<float> x = RandomFloats(n, 11);
      Hadamard(x.data(), n);
      results.push_back(x);
    });
    for (const std::vector<float>& result : results) EXPECT_TRUE(SameBits(result, results[0])) << "n " << n;
  }
}

TEST(HadamardTest, EqualsTheGoldenVectors) {
  const auto golden = ReadTensors("tests/golden/formats/formats.safetensors");
  ForEachTier([&] {
    for (int64_t n : {64, 128}) {
      const std::string name = "hadamard." + std::to_string(n);
      std::vector<float> x = golden.at(name + ".in").As<float>();
      ASSERT_EQ(x.size(), static_cast<size_t>(3 * n));
      for (int64_t row = 0; row < 3; ++row) Hadamard(x.data() + row * n, n);
      EXPECT_TRUE(SameBits(x, golden.at(name + ".out").As<float>())) << name;
    }
  });
}

}  // namespace
}  // namespace tessera::testing
