#include "tokenizer/added_tokens.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

AddedTokenMatcher Matcher(const std::vector<std::string>& contents) {
  AddedTokenMatcher matcher;
  for (size_t i = 0; i < contents.size(); ++i) matcher.Add(contents[i], static_cast<int32_t>(i));
  matcher.Sort();
  return matcher;
}

// All matches of `text` in order as "begin-end:id".
std::string Matches(const AddedTokenMatcher& matcher, std::string_view text) {
  std::string out;
  for (size_t from = 0;;) {
    const AddedTokenMatcher::Match match = matcher.Find(text, from);
    if (match.id < 0) return out;
    out += std::to_string(match.begin) + "-" + std::to_string(match.end) + ":" + std::to_string(match.id) + " ";
    from = match.end;
  }
}

TEST(AddedTokensTest, LeftmostThenLongest) {
  const AddedTokenMatcher matcher = Matcher({"ab", "abcd", "bcde", "b"});
  EXPECT_EQ(Matches(matcher, "abcde"), "0-4:1 ");
  EXPECT_EQ(Matches(matcher, "abce"), "0-2:0 ");
  EXPECT_EQ(Matches(matcher, "xbcdeb"), "1-5:2 5-6:3 ");
  EXPECT_EQ(Matches(matcher, "bc"), "0-1:3 ");
}

TEST(AddedTokensTest, AtTheEdgesAndInARow) {
  const AddedTokenMatcher matcher = Matcher({"<s>", "<s", "\xff\xfe"});
  EXPECT_EQ(Matches(matcher, "<s><s><s"), "0-3:0 3-6:0 6-8:1 ");
  EXPECT_EQ(Matches(matcher, "<<s>"), "1-4:0 ");
  EXPECT_EQ(Matches(matcher, "a\xff\xfe"), "1-3:2 ");
  EXPECT_EQ(Matches(matcher, "<"), "");
  EXPECT_EQ(Matches(matcher, ""), "");
}

TEST(AddedTokensTest, NoTokensMatchNothing) { EXPECT_EQ(Matches(Matcher({}), "abc"), ""); }

}  // namespace
}  // namespace tessera
