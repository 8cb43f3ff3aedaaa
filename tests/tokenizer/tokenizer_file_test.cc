#include "tokenizer/tokenizer_file.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "core/file.h"
#include "support/tensors.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

// tokenizer.json of the small golden model, to be broken in one place.
Json Valid() { return ReadJsonFile(testing::SourcePath("tests/golden/v4_tiny/tokenizer.json")); }

std::string ErrorOf(const std::string& text) {
  try {
    Tokenizer::Parse(text, "file");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void ExpectError(const std::string& text, const std::string& names) {
  const std::string error = ErrorOf(text);
  EXPECT_TRUE(error.starts_with("file: ")) << error;
  EXPECT_NE(error.find(names), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST(TokenizerFileTest, VocabularyMergesAndAddedTokens) {
  const TokenizerFile file = ParseTokenizerFile(Valid().dump(), "file");
  EXPECT_EQ(file.vocab.size(), 348u);
  EXPECT_EQ(file.merges.size(), 89u);
  EXPECT_EQ(file.merges[0], std::make_pair(std::string("h"), std::string("e")));
  EXPECT_EQ(file.added_tokens.size(), 7u);
  EXPECT_EQ(file.num_ids, 352);
  EXPECT_EQ(file.pre_tokenizer["type"], "ByteLevel");
}

TEST(TokenizerFileTest, MergesAsStringsAreTheSame) {
  Json json = Valid();
  for (Json& merge : json["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  EXPECT_EQ(ParseTokenizerFile(json.dump(), "file").merges, ParseTokenizerFile(Valid().dump(), "file").merges);
}

TEST(TokenizerFileTest, NotJson) {
  ExpectError("", "byte");
  ExpectError("{", "byte");
  ExpectError("[1e999]", "byte");
  ExpectError("{\"a\": \"\xff\"}", "byte");
  ExpectError(std::string(100'000, '['), "nested");
  ExpectError("[]", "no object model");
  ExpectError("7", "no object model");
  ExpectError(R"({"model": 7})", "no object model");
  ExpectError(R"({"a": 1, "a": 2})", "'a' stands twice");
  const std::string whole = Valid().dump();
  for (size_t length = 0; length < whole.size(); length += 97) ExpectError(whole.substr(0, length), "");
}

TEST(TokenizerFileTest, BrokenVocabulary) {
  ExpectError(R"({"model": {"type": "BPE", "merges": []}})", "model.vocab: missing");
  ExpectError(R"({"model": {"type": "BPE", "vocab": [], "merges": []}})", "model.vocab: missing");
  ExpectError(R"({"model": {"type": "BPE", "vocab": {"a": "b"}, "merges": []}})", "model.vocab: the value of 'a'");
  ExpectError(R"({"model": {"type": "BPE", "vocab": {"a": {}}, "merges": []}})", "model.vocab: the value of 'a'");
  ExpectError(R"({"model": {"type": "BPE", "vocab": {"a": []}, "merges": []}})", "model.vocab: the value of 'a'");
  ExpectError(R"({"model": {"type": "BPE", "vocab": {"a\n": 1.5}, "merges": []}})", "model.vocab: the value of 'a?'");
  ExpectError(R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})", "the id -1");
  ExpectError(R"({"model": {"type": "BPE", "vocab": {"a": 18446744073709551615}, "merges": []}})", "the id 1");
  const auto with_vocab = [](const std::string& vocab) {
    return R"({"model": {"type": "BPE", "vocab": )" + vocab + R"(, "merges": []}, "decoder": {"type": "ByteLevel"}})";
  };
  ExpectError(with_vocab(R"({"a": 2000000000})"), "only 1 tokens");
  ExpectError(with_vocab(R"({"a": 0, "b": 0})"), "'b' and another token have the id 0");
  ExpectError(with_vocab(R"({"a": 0, "a": 1})"), "'a' stands twice");
  ExpectError(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "vocab": {"b": 1}, "merges": []}})", "'vocab' stands twice");
}

TEST(TokenizerFileTest, OneFieldChanged) {
  struct Case {
    const char* pointer;
    const char* value;
    const char* names;
  };
  constexpr Case kCases[] = {
      {"/model/type", R"("Unigram")", "model.type"},
      {"/model/dropout", "0.1", "model.dropout"},
      {"/model/unk_token", R"("<unk>")", "model.unk_token"},
      {"/model/byte_fallback", "true", "model.byte_fallback"},
      {"/model/byte_fallback", "1", "byte_fallback: not true or false"},
      {"/model/ignore_merges", "true", "model.ignore_merges"},
      {"/model/merges", "null", "model.merges: missing"},
      {"/model/merges/3", R"("one")", "model.merges[3]"},
      {"/model/merges/3", R"("a b c")", "model.merges[3]"},
      {"/model/merges/3", R"(["a"])", "model.merges[3]"},
      {"/model/merges/3", R"(["a", 1])", "model.merges[3]"},
      {"/model/merges/3", R"(["a", ["b"]])", "model.merges[3]"},
      {"/model/merges/3", R"({"a": 1})", "model.merges[3]"},
      {"/model/merges/3", R"(["zz", "b"])", "'zz' is not in the vocabulary"},
      {"/model/merges/3", R"(["q", "z"])", "'qz' is not in the vocabulary"},
      {"/model/merges/3", R"(["h", "e"])", "'h e' stands twice"},
      {"/normalizer", R"({"type": "NFC"})", "normalizer"},
      {"/decoder", "null", "decoder"},
      {"/decoder", R"({"type": "Fuse"})", "decoder"},
      {"/pre_tokenizer", R"({"type": "Whitespace"})", "pre_tokenizer"},
      {"/added_tokens", "{}", "added_tokens"},
      {"/added_tokens/0", "7", "added_tokens[0]"},
      {"/added_tokens/0/id", "-1", "added_tokens[0]"},
      {"/added_tokens/0/id", "1.0", "added_tokens[0]"},
      {"/added_tokens/0/id", "99999999999", "added_tokens[0]"},
      {"/added_tokens/3/id", "1000", "only 355 tokens"},
      {"/added_tokens/3/id", "5", "the id 5 of another token"},
      {"/added_tokens/4/id", "348", "two tokens have the id 348"},
      {"/added_tokens/0/id", "350", "has the ids 0 and 350"},
      {"/added_tokens/0/content", R"("")", "content is empty"},
      {"/added_tokens/0/content", "1", "added_tokens[0]"},
      {"/added_tokens/0/lstrip", "true", "lstrip"},
      {"/added_tokens/0/single_word", R"("x")", "single_word"},
  };
  EXPECT_EQ(ErrorOf(Valid().dump()), "");
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::string(c.pointer) + " " + c.value);
    Json json = Valid();
    json[Json::json_pointer(c.pointer)] = Json::parse(c.value);
    ExpectError(json.dump(), c.names);
  }
}

TEST(TokenizerFileTest, EveryByteNeedsAToken) {
  Json json = Valid();
  json["model"]["vocab"].erase("q");
  ExpectError(json.dump(), "for the byte 0x71");
}

}  // namespace
}  // namespace tessera
