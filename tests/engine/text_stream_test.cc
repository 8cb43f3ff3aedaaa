#include "engine/text_stream.h"

#include <gtest/gtest.h>

#include "support/golden_model.h"

namespace tessera {
namespace {

class TextStreamTest : public ::testing::Test {
 protected:
  std::string Stream(const std::string& text, std::vector<std::string> stop, bool* stopped = nullptr) {
    TextStream stream(&tokenizer_, std::move(stop));
    std::string all;
    for (const int32_t id : tokenizer_.Encode(text)) all += stream.Push(id);
    all += stream.Finish();
    if (stopped != nullptr) *stopped = stream.stopped();
    return all;
  }
  Tokenizer tokenizer_ = Tokenizer::Load(testing::TinyDir());
};

TEST_F(TextStreamTest, GivesTheWholeTextWithoutStops) {
  const std::string text = "Once upon a time, caf\xc3\xa9 \xf0\x9f\x99\x82 and\n\nmore.";
  EXPECT_EQ(Stream(text, {}), text);
  EXPECT_EQ(Stream(text, {""}), text);
}

TEST_F(TextStreamTest, CutsAtTheFirstStopAndShowsNoPartOfIt) {
  bool stopped = false;
  EXPECT_EQ(Stream("one two three four", {"three", "two th"}, &stopped), "one ");
  EXPECT_TRUE(stopped);
}

TEST_F(TextStreamTest, ReleasesABeginningOfAStopThatDidNotComplete) {
  bool stopped = true;
  EXPECT_EQ(Stream("abc stop me", {"stop me now"}, &stopped), "abc stop me");
  EXPECT_FALSE(stopped);
  EXPECT_EQ(Stream("aaaaaab", {"aaab"}), "aaa");
}

TEST_F(TextStreamTest, NeverShowsHalfACharacter) {
  TextStream stream(&tokenizer_, {});
  for (const int32_t id : tokenizer_.Encode("\xe4\xb8\xad\xe6\x96\x87")) {
    const std::string text = stream.Push(id);
    EXPECT_TRUE(text.empty() || text == "\xe4\xb8\xad" || text == "\xe6\x96\x87" || text == "\xe4\xb8\xad\xe6\x96\x87") << text;
  }
}

TEST_F(TextStreamTest, IsEmptyWithoutATokenizer) {
  TextStream stream(nullptr, {"x"});
  EXPECT_EQ(stream.Push(5), "");
  EXPECT_EQ(stream.Finish(), "");
}

}  // namespace
}  // namespace tessera
