#include "tokenizer/token_map.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "core/check.h"
#include "tokenizer/v4_tokenizer.h"

namespace tessera {
namespace {

using testing::SourcePath;

TEST(TokenMapTest, EveryIdOfV4) {
  TSR_SKIP_WITHOUT_V4_TOKENIZER();
  const std::vector<int32_t> map = CompressedTokenMap(testing::V4Tokenizer());
  const auto golden = testing::ReadTensors("tests/golden/engram_hash/compressed_map_v4.safetensors");
  const auto expected = golden.at("compressed_id").As<int32_t>();
  ASSERT_EQ(map.size(), expected.size());
  size_t num_different = 0;
  for (size_t id = 0; id < map.size(); ++id) {
    if (map[id] == expected[id]) continue;
    if (++num_different <= 20) ADD_FAILURE() << "id " << id << ": " << map[id] << " instead of " << expected[id];
  }
  EXPECT_EQ(num_different, 0u);
  EXPECT_EQ(NumCompressedIds(map), 99092);
  EXPECT_EQ(map[2], 2);
}

TEST(TokenMapTest, SamplesOfV4) {
  TSR_SKIP_WITHOUT_V4_TOKENIZER();
  const std::vector<int32_t> map = CompressedTokenMap(testing::V4Tokenizer());
  const Json golden = ReadJsonFile(SourcePath("tests/golden/engram_map.json"));
  EXPECT_EQ(map.size(), golden["ids"].get<size_t>());
  EXPECT_EQ(NumCompressedIds(map), golden["keys"].get<int32_t>());
  const auto first = golden["first_50"].get<std::vector<int32_t>>();
  EXPECT_EQ(std::vector<int32_t>(map.begin(), map.begin() + 50), first);
  for (const char* name : {"random_50", "last_50"}) {
    for (const Json& pair : golden[name]) EXPECT_EQ(map[pair[0].get<size_t>()], pair[1].get<int32_t>());
  }
  EXPECT_EQ(std::accumulate(map.begin(), map.end(), int64_t{0}), golden["sum_of_map"].get<int64_t>());
}

TEST(TokenMapTest, V41RenamesTwoTokensAndKeepsTheMap) {
  TSR_SKIP_WITHOUT_V4_TOKENIZER();
  EXPECT_EQ(CompressedTokenMap(testing::V41Tokenizer()), CompressedTokenMap(testing::V4Tokenizer()));
}

TEST(TokenMapTest, SmallModels) {
  const std::vector<int32_t> map = CompressedTokenMap(Tokenizer::Load(SourcePath("tests/golden/v41_tiny")));
  const std::string bytes = ReadFile(SourcePath("tests/golden/v41_tiny/engram_token_map.i32"), size_t{1} << 20);
  std::vector<int32_t> expected(bytes.size() / sizeof(int32_t));
  std::memcpy(expected.data(), bytes.data(), bytes.size());
  EXPECT_EQ(map, expected);
  EXPECT_EQ(NumCompressedIds(map), 305);
  const std::vector<int32_t> tiny = CompressedTokenMap(Tokenizer::Load(SourcePath("models/tiny")));
  EXPECT_EQ(tiny.size(), 4096u);
  EXPECT_EQ(NumCompressedIds(tiny), 3533);
  EXPECT_EQ(tiny[2], 2);
}

TEST(TokenMapTest, NormalizedExamples) {
  const Json golden = ReadJsonFile(SourcePath("tests/golden/engram_hash/compressed_map_info.json"));
  size_t count = 0;
  for (const Json& example : golden["normalise_examples"]) {
    EXPECT_EQ(NormalizeForEngram(example["text"].get<std::string>()), example["normalised"].get<std::string>()) << example["text"];
    ++count;
  }
  EXPECT_GT(count, 2u);
}

TEST(TokenMapTest, SpaceIsStrippedUnlessItIsAll) {
  EXPECT_EQ(NormalizeForEngram(" Walker "), "walker");
  EXPECT_EQ(NormalizeForEngram(" \t\r\n"), " ");
  EXPECT_EQ(NormalizeForEngram("a \n b"), "a b");
  EXPECT_EQ(NormalizeForEngram("\u2028x\v"), "x");
  EXPECT_EQ(NormalizeForEngram("\u2028"), "");        // white space, but not one of the four that become a space
  EXPECT_EQ(NormalizeForEngram("\u0301"), "");        // a mark alone
  EXPECT_EQ(NormalizeForEngram("ΑΣ"), "ασ");  // no final sigma
  EXPECT_EQ(NormalizeForEngram(""), "");
}

}  // namespace
}  // namespace tessera
