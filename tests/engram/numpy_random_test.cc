#include "engram/numpy_random.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

namespace tessera {
namespace {

// Engram's published multipliers for layer 1 are 2 r + 1 of these draws: default_rng(10007).integers(0, 46539438283891, 4).
TEST(NumpyRandomTest, DrawsWhatNumpyDraws) {
  NumpyGenerator generator(10007);
  EXPECT_EQ(generator.NextBelow(46539438283891), 38316048023122u);
  EXPECT_EQ(generator.NextBelow(46539438283891), 2419938046656u);
  EXPECT_EQ(generator.NextBelow(46539438283891), 17979836159674u);
  EXPECT_EQ(generator.NextBelow(46539438283891), 36993668729195u);
}

// Expected values here and below: numpy 2.x, default_rng(seed).bit_generator.random_raw(3) and .integers(0, bound, 6, dtype=uint64).
TEST(NumpyRandomTest, RawBitsForSeedsOfOneAndTwoWords) {
  const std::vector<std::pair<uint64_t, std::array<uint64_t, 3>>> cases = {
      {0, {11749869230777074271u, 4976686463289251617u, 755828109848996024u}},
      {10007, {15187255322829266483u, 959186003677246517u, 7126631698937927467u}},
      {140098, {13420388419549774097u, 10208617735032736636u, 6128116274024149523u}},
      {4294967303u, {14206593023844375757u, 2064693230803885548u, 3488237491050697490u}},
      {18446744073709551615u, {12544278110101001871u, 15593249672699323225u, 136562751618339402u}}};
  for (const auto& [seed, want] : cases) {
    NumpyGenerator generator(seed);
    for (uint64_t value : want) EXPECT_EQ(generator.Next(), value) << "seed " << seed;
  }
}

// For 2^63 + 1 almost half of all draws are rejected and drawn again.
TEST(NumpyRandomTest, BoundsThatReject) {
  NumpyGenerator quarter(1);
  for (uint64_t want : {2360360630558964032u, 4383240139369130522u, 664818870401041971u, 4374873391751699445u, 1438068747342666922u,
                        1952248665957342226u})
    EXPECT_EQ(quarter.NextBelow((uint64_t{1} << 62) + 1), want);
  NumpyGenerator half(1);
  for (uint64_t want : {8766480278738261043u, 1329637740802083942u, 8749746783503398889u, 2876137494685333844u, 7634208958675629714u,
                        5069107050515594517u})
    EXPECT_EQ(half.NextBelow((uint64_t{1} << 63) + 1), want);
}

}  // namespace
}  // namespace tessera
