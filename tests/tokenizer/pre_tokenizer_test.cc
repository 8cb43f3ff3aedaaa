#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "core/file.h"
#include "support/tensors.h"

namespace tessera {
namespace {

using Pieces = std::vector<std::string>;

Pieces Split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Pieces pieces;
  pre_tokenizer.ForEachPiece(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

PreTokenizer DeepSeek() {
  return PreTokenizer::FromJson(ReadJsonFile(testing::SourcePath("models/tiny/tokenizer.json"))["pre_tokenizer"], "test");
}

Json SplitJson(const std::string& regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
}

TEST(PreTokenizerTest, DeepSeeksSplits) {
  const PreTokenizer pre_tokenizer = DeepSeek();
  EXPECT_EQ(Split(pre_tokenizer, "Hello, world!"), (Pieces{"Hello", ",", " world", "!"}));
  EXPECT_EQ(Split(pre_tokenizer, "12345 x9"), (Pieces{"123", "45", " x", "9"}));
  EXPECT_EQ(Split(pre_tokenizer, "it's a.b  c"), (Pieces{"it", "'s", " a", ".b", " ", " c"}));
  EXPECT_EQ(Split(pre_tokenizer, "中文abc"), (Pieces{"中文", "abc"}));
  EXPECT_EQ(Split(pre_tokenizer, "a \n\n  b"), (Pieces{"a", " \n\n", " ", " b"}));
  EXPECT_EQ(Split(pre_tokenizer, "a...\n\nb"), (Pieces{"a", "...\n\n", "b"}));
  EXPECT_EQ(Split(pre_tokenizer, ""), Pieces{});
}

TEST(PreTokenizerTest, ALaterSplitSeesOnlyItsPiece) {
  // "  " ends its piece in front of the digit, so the look-ahead (?!\S) holds and both spaces stay together.
  EXPECT_EQ(Split(DeepSeek(), "a  1"), (Pieces{"a", "  ", "1"}));
  EXPECT_EQ(Split(DeepSeek(), "a  b"), (Pieces{"a", " ", " b"}));
}

TEST(PreTokenizerTest, WhiteSpaceIsUnicodes) {
  const PreTokenizer pre_tokenizer = PreTokenizer::FromJson(SplitJson("\\s+|[^\\s]+"), "test");
  EXPECT_EQ(Split(pre_tokenizer, "a\u00a0\u3000\u0085 b"), (Pieces{"a", "\u00a0\u3000\u0085 ", "b"}));
  EXPECT_EQ(Split(pre_tokenizer, "a\u180eb\u200b"), (Pieces{"a\u180eb\u200b"}));  // neither is white space
  EXPECT_EQ(Split(PreTokenizer::FromJson(SplitJson("\\\\s"), "test"), "a\\s b"), (Pieces{"a", "\\s", " b"}));
}

TEST(PreTokenizerTest, PiecesAreTheText) {
  const PreTokenizer pre_tokenizer = DeepSeek();
  const std::string text = ReadFile(testing::SourcePath("tests/golden/chat/ENCODING.md"), size_t{1} << 20);
  std::string joined;
  for (const std::string& piece : Split(pre_tokenizer, text)) {
    EXPECT_FALSE(piece.empty());
    joined += piece;
  }
  EXPECT_EQ(joined, text);
}

TEST(PreTokenizerTest, ByteLevelAloneAppliesItsOwnPattern) {
  const Json json = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  EXPECT_EQ(Split(PreTokenizer::FromJson(json, "test"), "it's  2 be"), (Pieces{"it", "'s", " ", " 2", " be"}));
  EXPECT_EQ(Split(PreTokenizer::FromJson(Json(nullptr), "test"), "it's 2"), (Pieces{"it's 2"}));
}

TEST(PreTokenizerTest, WhatItCannotDoIsRefused) {
  const std::vector<Json> cases = {
      7,
      {{"type", 7}},
      {{"type", "Whitespace"}},
      {{"type", "Sequence"}},
      {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Sequence"}, {"pretokenizers", Json::array()}}}}},
      {{"type", "ByteLevel"}},  // add_prefix_space is its default
      {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Removed"}},
      {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}, {"invert", true}},
      {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Isolated"}},
      SplitJson("("),
      SplitJson("a*"),
      SplitJson(std::string(20'000, 'a')),
  };
  for (const Json& json : cases) EXPECT_THROW(PreTokenizer::FromJson(json, "test"), Error) << json;
}

TEST(PreTokenizerTest, ACatastrophicPatternEndsWithAnError) {
  const PreTokenizer pre_tokenizer = PreTokenizer::FromJson(SplitJson("(a+)+[bc]"), "test");
  EXPECT_THROW(Split(pre_tokenizer, std::string(2000, 'a')), Error);
}

}  // namespace
}  // namespace tessera
