#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/check.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/v4_tokenizer.h"

namespace tessera {
namespace {

using testing::SourcePath;

using Ids = std::vector<int32_t>;

const Json& Golden() {
  static const Json golden = Json::parse(ReadFile(SourcePath("tests/golden/tokenizer/tokenizer.json"), size_t{64} << 20));
  return golden;
}

std::string BytesFromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(TokenizerTest, IdsOfEveryGoldenString) {
  TSR_SKIP_WITHOUT_V4_TOKENIZER();
  const Tokenizer& tokenizer = testing::V4Tokenizer();
  size_t count = 0;
  for (const Json& entry : Golden()["strings"]) {
    const auto text = entry["text"].get<std::string>();
    const auto ids = entry["ids"].get<Ids>();
    EXPECT_EQ(tokenizer.Encode(text, {.parse_special = true}), ids) << text;
    EXPECT_EQ(tokenizer.Encode(text), entry.contains("ids_plain") ? entry["ids_plain"].get<Ids>() : ids) << text;
    EXPECT_EQ(tokenizer.Decode(ids), text);
    EXPECT_EQ(tokenizer.Decode(ids, {.skip_special = true}), entry.value("decoded_skip_special", text));
    ++count;
  }
  EXPECT_EQ(count, 431u);
}

TEST(TokenizerTest, EveryGoldenStringInOneText) {
  TSR_SKIP_WITHOUT_V4_TOKENIZER();
  // A line break between two added tokens is a piece of its own, so the ids of the whole are the ids of the parts. The repetition of all
  // strings makes the table of known pieces answer the second time.
  const Tokenizer& tokenizer = testing::V4Tokenizer();
  std::string text;
  Ids expected;
  for (int round = 0; round < 2; ++round) {
    for (const Json& entry : Golden()["strings"]) {
      text += entry["text"].get<std::string>() + "<｜end▁of▁sentence｜>";
      const auto ids = entry["ids"].get<Ids>();
      expected.insert(expected.end(), ids.begin(), ids.end());
      expected.push_back(1);
    }
  }
  EXPECT_EQ(tokenizer.Encode(text, {.parse_special = true}), expected);
}

TEST(TokenizerTest, SequencesThatAreNotUtf8) {
  TSR_SKIP_WITHOUT_V4_TOKENIZER();
  const Tokenizer& tokenizer = testing::V4Tokenizer();
  for (const Json& entry : Golden()["id_sequences"]) {
    const auto ids = entry["ids"].get<Ids>();
    const auto decoded = entry["decoded_utf8_replace"].get<std::string>();
    EXPECT_EQ(tokenizer.Decode(ids), decoded);
    std::string bytes;
    std::string streamed;
    StreamDecoder decoder(tokenizer);
    for (const int32_t id : ids) {
      bytes += tokenizer.TokenBytes(id);
      const std::string part = decoder.Push(id);
      EXPECT_EQ(ValidUtf8Prefix(part), part.size());
      streamed += part;
    }
    EXPECT_EQ(bytes, BytesFromHex(entry["bytes_hex"]));
    EXPECT_EQ(streamed + decoder.Finish(), decoded);
  }
}

TEST(TokenizerTest, AddedTokensOfV4) {
  TSR_SKIP_WITHOUT_V4_TOKENIZER();
  const Tokenizer& tokenizer = testing::V4Tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 129280);
  EXPECT_EQ(tokenizer.bos_id(), 0);
  EXPECT_EQ(tokenizer.eos_id(), 1);
  for (const Json& token : Golden()["added_tokens"]) {
    const int32_t id = token["id"];
    EXPECT_EQ(tokenizer.FindToken(token["content"].get<std::string>()), id);
    EXPECT_TRUE(tokenizer.IsAdded(id));
    EXPECT_EQ(tokenizer.IsSpecial(id), token["special"].get<bool>());
    EXPECT_EQ(tokenizer.TokenBytes(id), token["content"].get<std::string>());
  }
}

TEST(TokenizerTest, EmbeddedModelsPromptsAndValidationText) {
  const Tokenizer tokenizer = Tokenizer::Load(SourcePath("models/tiny"));
  const Json golden = ReadJsonFile(SourcePath("tests/golden/tiny/golden.json"));
  for (const Json& entry : golden["cases"]) {
    EXPECT_EQ(tokenizer.Encode(entry["text_in"].get<std::string>(), {.parse_special = true}), entry["input_ids"].get<Ids>());
    EXPECT_EQ(tokenizer.Decode(entry["output_ids"].get<Ids>()), entry["output_text"].get<std::string>());
  }
  const std::string valid = ReadFile(SourcePath("tests/golden/tiny/valid.txt"), size_t{1} << 20);
  const Ids ids = tokenizer.Encode(valid);
  EXPECT_EQ(ids.size() / 255 * 255, golden["valid"]["tokens"].get<size_t>());  // whole chunks of 255, the tail dropped
  const auto first = golden["valid"]["first_ids"].get<Ids>();
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(first.size())), first);
  const auto long_prompt = golden["long"]["ids"].get<Ids>();  // id 0, then the first ids of the text
  EXPECT_TRUE(std::equal(long_prompt.begin() + 1, long_prompt.end(), ids.begin()));
  EXPECT_EQ(tokenizer.Decode(ids), valid);
  EXPECT_EQ(tokenizer.bos_id(), 0);
  EXPECT_EQ(tokenizer.eos_id(), 1);
  EXPECT_EQ(tokenizer.vocab_size(), 4096);
}

TEST(TokenizerTest, MarkersAreTextUnlessAskedFor) {
  const Tokenizer tokenizer = Tokenizer::Load(SourcePath("models/tiny"));
  const std::string text = "<｜User｜>a</think><｜User｜><｜begin▁of▁sentence｜>";
  EXPECT_EQ(tokenizer.Encode(text, {.parse_special = true}), (Ids{4054, *tokenizer.FindToken("a"), 4073, 4054, 0}));
  for (const int32_t id : tokenizer.Encode(text)) EXPECT_FALSE(tokenizer.IsAdded(id));
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
}

TEST(TokenizerTest, LongPiecesRoundTrip) {
  const Tokenizer tokenizer = Tokenizer::Load(SourcePath("models/tiny"));
  constexpr size_t kBytes = 300'000;
  std::string mixed;
  for (size_t i = 0; i < kBytes; ++i) mixed.push_back(static_cast<char>('a' + i * i % 23));
  for (const std::string& text : {std::string(kBytes, ' '), std::string(kBytes, '\n'), std::string(kBytes, 'a'), std::string(kBytes, '!'),
                                  std::string(kBytes, '7'), mixed, std::string(kBytes, ' ') + "x"}) {
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
  }
}

TEST(TokenizerTest, EmptyTextAndUnknownIds) {
  const Tokenizer tokenizer = Tokenizer::Load(SourcePath("models/tiny"));
  EXPECT_TRUE(tokenizer.Encode("").empty());
  EXPECT_TRUE(tokenizer.Encode("", {.parse_special = true}).empty());
  EXPECT_EQ(tokenizer.Decode(Ids{-1, 4096, INT32_MAX}), "");
  EXPECT_FALSE(tokenizer.HasToken(-1));
  EXPECT_FALSE(tokenizer.HasToken(4096));
  EXPECT_EQ(tokenizer.FindToken("no such token"), std::nullopt);
}

TEST(TokenizerTest, TextThatIsNotUtf8IsRefusedWithItsOffset) {
  const Tokenizer tokenizer = Tokenizer::Load(SourcePath("models/tiny"));
  try {
    tokenizer.Encode("abc\xffz");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the text is not valid UTF-8 at byte 3");
  }
}

TEST(TokenizerTest, ManyThreadsShareOneTokenizer) {
  const Tokenizer tokenizer = Tokenizer::Load(SourcePath("models/tiny"));
  const std::string valid = ReadFile(SourcePath("tests/golden/tiny/valid.txt"), size_t{1} << 20);
  const Ids expected = tokenizer.Encode(valid);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { result = tokenizer.Encode(valid); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(TokenizerTest, MissingFileIsNamed) {
  try {
    Tokenizer::Load("/nonexistent");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/tokenizer.json"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera
