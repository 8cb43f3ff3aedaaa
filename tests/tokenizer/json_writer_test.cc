#include "tokenizer/json_writer.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

std::string Rewrite(const std::string& text, DoubleStyle style) {
  std::string out;
  AppendJson(ParseJson(text, "test"), style, &out);
  return out;
}

TEST(JsonWriterTest, Layout) {
  EXPECT_EQ(Rewrite(R"({"b":[1,true,null,"x"],"a":{},"c":[]})", DoubleStyle::kPadded), R"({"b": [1, true, null, "x"], "a": {}, "c": []})");
}

TEST(JsonWriterTest, Escapes) {
  EXPECT_EQ(Rewrite(R"("\"\\\/\n\r\t\b\f\u0001\u001f\u007f\u2028<&é")", DoubleStyle::kPadded),
            "\"\\\"\\\\/\\n\\r\\t\\b\\f\\u0001\\u001f\x7f\u2028<&é\"");
}

TEST(JsonWriterTest, Numbers) {
  struct Case {
    const char* text;
    const char* padded;
    const char* unpadded;
  };
  constexpr Case kCases[] = {
      {"0", "0", "0"},
      {"-0", "-0.0", "-0.0"},
      {"-0.0", "-0.0", "-0.0"},
      {"-7", "-7", "-7"},
      {"9223372036854775807", "9223372036854775807", "9223372036854775807"},
      {"18446744073709551615", "18446744073709551615", "18446744073709551615"},
      {"-9223372036854775808", "-9223372036854775808", "-9223372036854775808"},
      {"18446744073709551616", "1.8446744073709552e+19", "1.8446744073709552e+19"},
      {"1.10", "1.1", "1.1"},
      {"1e3", "1000.0", "1000.0"},
      {"123456.789", "123456.789", "123456.789"},
      {"9007199254740993.0", "9007199254740992.0", "9007199254740992.0"},
      {"1e15", "1000000000000000.0", "1000000000000000.0"},
      {"1e16", "1e+16", "1e+16"},
      {"1.5e300", "1.5e+300", "1.5e+300"},
      {"0.001", "0.001", "0.001"},
      {"0.0001", "0.0001", "0.0001"},
      {"0.00012", "0.00012", "0.00012"},
      {"0.00001", "1e-05", "0.00001"},
      {"-0.000012", "-1.2e-05", "-0.000012"},
      {"0.000001", "1e-06", "1e-6"},
      {"1e-7", "1e-07", "1e-7"},
      {"5e-324", "5e-324", "5e-324"},
  };
  for (const Case& c : kCases) {
    EXPECT_EQ(Rewrite(c.text, DoubleStyle::kPadded), c.padded);
    EXPECT_EQ(Rewrite(c.text, DoubleStyle::kUnpadded), c.unpadded);
  }
}

TEST(JsonWriterTest, DuplicateKeysKeepTheFirstPlaceAndTheLastValue) {
  EXPECT_EQ(Rewrite(R"({"a":1,"b":2,"a":3})", DoubleStyle::kPadded), R"({"a": 3, "b": 2})");
}

TEST(JsonWriterTest, EscapedTextMayComeInParts) {
  const std::string text = "a\"é\n\x01";
  std::string whole;
  AppendJsonEscaped(text, &whole);
  std::string parts;
  for (const char c : text) AppendJsonEscaped(std::string_view(&c, 1), &parts);
  EXPECT_EQ(parts, whole);
}

}  // namespace
}  // namespace tessera
