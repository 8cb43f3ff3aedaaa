#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

std::string Repaired(std::string_view bytes, size_t chunk) {
  Utf8Repair repair;
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += chunk) {
    repair.Push(bytes.substr(i, chunk), &out);
    EXPECT_EQ(ValidUtf8Prefix(out), out.size());
  }
  repair.Finish(&out);
  return out;
}

TEST(Utf8Test, RepairsLikePythonsReplace) {
  struct Case {
    const char* bytes;
    const char* text;  // Python: bytes.decode("utf-8", "replace")
  };
  constexpr Case kCases[] = {
      {"abc", "abc"},
      {"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80", "é中😀"},
      {"\x80", "\ufffd"},
      {"\xc0\xaf", "\ufffd\ufffd"},
      {"\xc3", "\ufffd"},
      {"\xc3z", "\ufffdz"},
      {"\xe4\xb8", "\ufffd"},
      {"\xe4\xb8z", "\ufffdz"},
      {"\xe4\xb8\xc3\xa9", "\ufffdé"},
      {"\xe0\x80\x80", "\ufffd\ufffd\ufffd"},
      {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
      {"\xf0\x90\x80", "\ufffd"},
      {"\xf0\x8f\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
      {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
      {"\xf5\xff", "\ufffd\ufffd"},
      {"\xf0\x9f\x98\xf0\x9f\x98\x80", "\ufffd😀"},
      {"\xef\xbf\xbd", "\ufffd"},
  };
  for (const Case& c : kCases) {
    for (const size_t chunk : {1, 2, 3, 100}) EXPECT_EQ(Repaired(c.bytes, chunk), c.text) << c.text << " by " << chunk;
  }
}

TEST(Utf8Test, HoldsBackOnlyAnIncompleteCharacter) {
  Utf8Repair repair;
  std::string out;
  repair.Push("a\xf0\x9f", &out);
  EXPECT_EQ(out, "a");
  repair.Push("\x98", &out);
  EXPECT_EQ(out, "a");
  repair.Push("\x80z", &out);
  EXPECT_EQ(out, "a😀z");
  repair.Finish(&out);
  EXPECT_EQ(out, "a😀z");
}

TEST(Utf8Test, ValidPrefix) {
  EXPECT_EQ(ValidUtf8Prefix(""), 0u);
  EXPECT_EQ(ValidUtf8Prefix("0123456789é"), 12u);
  EXPECT_EQ(ValidUtf8Prefix("0123456789\xc3"), 10u);
  EXPECT_EQ(ValidUtf8Prefix("01234567\xff"), 8u);
  EXPECT_EQ(ValidUtf8Prefix("\xed\xa0\x80"), 0u);
  EXPECT_EQ(ValidUtf8Prefix("\xed\x9f\xbf"), 3u);
  EXPECT_EQ(ValidUtf8Prefix("\xf4\x8f\xbf\xbf\xf4\x90\x80\x80"), 4u);
}

TEST(Utf8Test, EveryCodePointComesBack) {
  for (char32_t c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_EQ(ValidUtf8Prefix(text), text.size());
    size_t pos = 0;
    ASSERT_EQ(NextCodePoint(text, &pos), c);
    ASSERT_EQ(pos, text.size());
  }
}

}  // namespace
}  // namespace tessera
