#include "core/json.h"

#include <gtest/gtest.h>

#include <string>

#include "core/check.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

std::string ErrorOf(const std::string& text, JsonLimits limits = {}) {
  try {
    (void)ParseJson(text, "config.json", limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(JsonTest, KeysKeepTheOrderOfTheText) {
  const Json json = ParseJson(R"({"z": 1, "a": [true, null, "x"], "m": 2.5})", "test");
  EXPECT_EQ(json.dump(), R"({"z":1,"a":[true,null,"x"],"m":2.5})");
}

TEST(JsonTest, AnErrorNamesTheSourceAndTheByte) {
  EXPECT_EQ(ErrorOf(R"({"a": })"), "config.json: not valid JSON at byte 7");
  EXPECT_EQ(ErrorOf(""), "config.json: not valid JSON at byte 1");
  EXPECT_EQ(ErrorOf("{} x"), "config.json: not valid JSON at byte 4");
  EXPECT_NE(ErrorOf("\"\xff\""), "no error");  // not UTF-8
  EXPECT_NE(ErrorOf("[1e999]"), "no error");   // no number this machine has
}

TEST(JsonTest, DepthIsBoundedBeforeParsing) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(ErrorOf(nested(64)), "no error");
  EXPECT_EQ(ErrorOf(nested(65)), "config.json: JSON nested deeper than 64 levels at byte 64");
  EXPECT_NE(ErrorOf(std::string(1 << 20, '[')), "no error");
  EXPECT_EQ(ErrorOf(R"({"a": {"b": [1]}})", {.depth_max = 3}), "no error");
  EXPECT_NE(ErrorOf(R"({"a": {"b": [[1]]}})", {.depth_max = 3}), "no error");
}

TEST(JsonTest, BracketsInsideStringsAreText) {
  EXPECT_EQ(ErrorOf(R"(["[[[[", "\"[[[[", "\\"])", {.depth_max = 1}), "no error");
}

TEST(JsonTest, SizeIsBounded) {
  EXPECT_EQ(ErrorOf("[1, 2, 3]", {.bytes_max = 9}), "no error");
  EXPECT_EQ(ErrorOf("[1, 2, 3]", {.bytes_max = 8}), "config.json: 9 bytes of JSON, at most 8 are allowed");
}

TEST(JsonTest, AFileIsReadWithTheSameLimits) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.Write("a.json", R"({"a": 1})");
  EXPECT_EQ(ReadJsonFile(path)["a"], 1);
  EXPECT_THROW((void)ReadJsonFile(path, {.bytes_max = 4}), Error);
  try {
    (void)ReadJsonFile(folder.Write("b.json", "{"));
    FAIL() << "half an object was read";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find(folder.path() + "/b.json: "), 0u) << error.what();
  }
}

}  // namespace
}  // namespace tessera
