#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "core/random.h"

namespace tessera {
namespace {

constexpr int32_t kNumMerges = 400;

// Merges over the letters a..d in which each new token is a random pair of earlier ones; the bytes are tokens 0..255.
std::vector<Bpe::Merge> RandomMerges(uint64_t seed) {
  std::vector<Bpe::Merge> merges;
  std::map<std::pair<int32_t, int32_t>, bool> known;
  for (uint64_t i = 0; merges.size() < kNumMerges; ++i) {
    const auto draw = [&](uint64_t stream) {
      const auto num_tokens = 4 + static_cast<int32_t>(merges.size());
      const auto idx = static_cast<int32_t>(UniformDouble(seed, stream, i) * num_tokens);
      return idx < 4 ? 'a' + idx : 256 + idx - 4;
    };
    const int32_t left = draw(0), right = draw(1);
    if (known.emplace(std::make_pair(left, right), true).second) merges.push_back({left, right, 256 + static_cast<int32_t>(merges.size())});
  }
  return merges;
}

std::string RandomText(uint64_t seed, size_t length) {
  std::string text;
  for (uint64_t i = 0; i < length; ++i) text.push_back(static_cast<char>('a' + static_cast<int>(UniformDouble(seed, 2, i) * 4)));
  return text;
}

// The definition, word for word: merge the pair of lowest rank, leftmost first, until none is left.
std::vector<int32_t> SlowEncode(const std::string& piece, const std::vector<Bpe::Merge>& merges) {
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
  for (size_t rank = 0; rank < merges.size(); ++rank) ranks[{merges[rank].left, merges[rank].right}] = rank;
  std::vector<int32_t> symbols;
  for (const char c : piece) symbols.push_back(static_cast<uint8_t>(c));
  while (true) {
    size_t best_rank = merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rule = ranks.find({symbols[i], symbols[i + 1]});
      if (rule != ranks.end() && rule->second < best_rank) {
        best_rank = rule->second;
        best = i;
      }
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best] = merges[best_rank].result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

std::vector<int32_t> ByteIds() {
  std::vector<int32_t> ids(256);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(BpeTest, EqualsTheDefinitionAtEveryLength) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const std::vector<Bpe::Merge> merges = RandomMerges(seed);
    const Bpe bpe(ByteIds(), merges);
    for (size_t length = 0; length <= 140; ++length) {  // both algorithms and the border between them at 64
      const std::string text = RandomText(seed * 1000 + length, length);
      std::vector<int32_t> ids = {7};
      if (length > 0) bpe.Encode(text, &ids);
      std::vector<int32_t> expected = {7};  // ids are appended
      for (const int32_t id : SlowEncode(text, merges)) expected.push_back(id);
      EXPECT_EQ(ids, expected) << text;
    }
  }
}

TEST(BpeTest, WithoutMergesEveryByteIsAToken) {
  const Bpe bpe(ByteIds(), {});
  std::vector<int32_t> ids;
  bpe.Encode("a\xff", &ids);
  bpe.Encode(std::string(100, 'b'), &ids);
  ASSERT_EQ(ids.size(), 102u);
  EXPECT_EQ(ids[0], 'a');
  EXPECT_EQ(ids[1], 255);
  EXPECT_EQ(ids[101], 'b');
}

TEST(BpeTest, EqualRanksMergeLeftmostFirst) {
  const Bpe bpe(ByteIds(), std::vector<Bpe::Merge>{{'a', 'a', 256}});
  std::vector<int32_t> ids;
  bpe.Encode("aaaaa", &ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{256, 256, 'a'}));
  ids.clear();
  bpe.Encode(std::string(101, 'a'), &ids);
  EXPECT_EQ(ids.size(), 51u);
  EXPECT_EQ(ids.back(), 'a');
}

}  // namespace
}  // namespace tessera
