#include "core/random.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera {
namespace {

using Words = std::array<uint32_t, 4>;

// The published vectors of philox4x32-10.
TEST(RandomTest, PhiloxKnownAnswers) {
  const uint64_t ones = ~uint64_t{0};
  EXPECT_EQ(Philox4x32(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32(ones, ones, ones), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Counter and key from the digits of pi: 243f6a88 85a308d3 13198a2e 03707344, a4093822 299f31d0.
  EXPECT_EQ(Philox4x32(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, UniformStaysInRangeAndHasTheMeanOfOne) {
  // 100,000 draws of variance 1/12: the mean lies within 6 standard errors, 6 / sqrt(12 * 1e5) = 0.0055, of one half.
  double sum = 0;
  for (uint64_t counter = 0; counter < 100000; ++counter) {
    const double value = UniformDouble(7, 3, counter);
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.0055);
}

TEST(RandomTest, SeedStreamAndCounterEachMatter) {
  const std::set<double> values = {UniformDouble(0, 0, 0), UniformDouble(1, 0, 0), UniformDouble(0, 1, 0), UniformDouble(0, 0, 1),
                                   UniformDouble(uint64_t{1} << 32, 0, 0), UniformDouble(0, uint64_t{1} << 32, 0)};
  EXPECT_EQ(values.size(), 6u);
  EXPECT_EQ(UniformDouble(5, 6, 7), UniformDouble(5, 6, 7));
}

}  // namespace
}  // namespace tessera
