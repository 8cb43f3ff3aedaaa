#include "engine/token_counts.h"

#include <gtest/gtest.h>

#include <map>

#include "core/random.h"

namespace tessera {
namespace {

TEST(TokenCountsTest, CountsTheAnswerAndKnowsThePrompt) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto vocab_size = static_cast<int64_t>(1 + seed * 3);
    const auto draw = [&](uint64_t stream, uint64_t i) {
      return static_cast<int32_t>(UniformDouble(seed, stream, i) * static_cast<double>(vocab_size));
    };
    std::vector<int32_t> prompt;
    std::map<int32_t, int32_t> expected;
    for (uint64_t i = 0; i < seed; ++i) prompt.push_back(draw(1, i));
    for (const int32_t id : prompt) expected[id] = 0;
    TokenCounts counts(prompt, 50, vocab_size);
    const TokenCounts::Entry* storage = counts.entries().data();
    for (uint64_t i = 0; i < 50; ++i) {
      const int32_t id = draw(2, i);
      counts.Add(id);
      ++expected[id];
    }
    ASSERT_EQ(counts.entries().size(), expected.size());
    auto it = expected.begin();
    for (const TokenCounts::Entry& entry : counts.entries()) {
      EXPECT_EQ(entry.token_id, it->first);
      EXPECT_EQ(entry.num_generated, it->second);
      ++it;
    }
    if (!prompt.empty()) {
      EXPECT_EQ(counts.entries().data(), storage) << "the room reserved at the start was enough";
    }
  }
}

TEST(TokenCountsDeathTest, RefusesATokenThatThereIsNoRoomFor) {
  TokenCounts counts;
  EXPECT_TRUE(counts.entries().empty());
  EXPECT_DEATH(counts.Add(3), "one more than the 0");
}

}  // namespace
}  // namespace tessera
