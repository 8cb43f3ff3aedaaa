#include "kernels/random_words.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/random.h"
#include "support/each_tier.h"

namespace tessera::testing {
namespace {

// The twin is core/random.h, which has the published answers. Every tail of the lanes, and a counter that carries into its upper half.
TEST(RandomWordsTest, AreBlockAfterBlockOfTheStreamOnEveryTier) {
  constexpr uint64_t kSeed = 0x0123456789abcdefu, kStream = 0xfedcba9876543210u, kFirst = (uint64_t{1} << 32) - 5;
  ForEachTier([] {
    for (size_t num_blocks = 0; num_blocks <= 50; ++num_blocks) {
      std::vector<uint32_t> words(4 * num_blocks + 4, 0x5a5a5a5au);
      FillRandomWords(kSeed, kStream, kFirst, std::span(words).first(4 * num_blocks));
      for (size_t i = 0; i < num_blocks; ++i) {
        const std::array<uint32_t, 4> expected = Philox4x32(kSeed, kFirst + i, kStream);
        for (size_t j = 0; j < 4; ++j) ASSERT_EQ(words[4 * i + j], expected[j]) << "block " << i << " of " << num_blocks;
      }
      for (size_t j = 4 * num_blocks; j < words.size(); ++j) ASSERT_EQ(words[j], 0x5a5a5a5au) << "beyond " << num_blocks << " blocks";
    }
  });
}

}  // namespace
}  // namespace tessera::testing
