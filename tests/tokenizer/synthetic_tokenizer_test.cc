#include "tokenizer/synthetic_tokenizer.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "tokenizer/chat_format.h"
#include "tokenizer/token_map.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

Tokenizer Make(int64_t vocab_size) { return Tokenizer::Parse(SyntheticTokenizerJson(vocab_size), "generated"); }

TEST(SyntheticTokenizerTest, HasExactlyTheIdsAskedFor) {
  for (const int64_t vocab_size : {SyntheticVocabMin(), SyntheticVocabMin() + 1, int64_t{1000}, int64_t{20000}, int64_t{129280}}) {
    const Tokenizer tokenizer = Make(vocab_size);
    EXPECT_EQ(tokenizer.vocab_size(), vocab_size);
    for (int32_t id = 0; id < vocab_size; ++id) ASSERT_TRUE(tokenizer.HasToken(id)) << id << " of " << vocab_size;
    EXPECT_EQ(tokenizer.bos_id(), 0);
    EXPECT_EQ(tokenizer.eos_id(), 1);
  }
}

TEST(SyntheticTokenizerTest, SpellsAnyTextAndReadsItBack) {
  const std::string text = "Hello there, 12 w\xc3\xb6rter\n\tand \xf0\x9f\x8c\x8d <think>";
  for (const int64_t vocab_size : {SyntheticVocabMin(), int64_t{1000}, int64_t{20000}}) {
    const Tokenizer tokenizer = Make(vocab_size);
    const std::vector<int32_t> ids = tokenizer.Encode(text);
    EXPECT_EQ(tokenizer.Decode(ids), text) << vocab_size;
    for (const int32_t id : ids) EXPECT_FALSE(tokenizer.IsAdded(id)) << "text alone never becomes a control token";
  }
}

TEST(SyntheticTokenizerTest, MergesLetterByLetterAsFarAsTheVocabularyGoes) {
  const int64_t bytes_and_control = SyntheticVocabMin();
  EXPECT_EQ(Make(bytes_and_control).Encode("abc").size(), 3u);
  EXPECT_EQ(Make(bytes_and_control + 26 * 26).Encode("zzz").size(), 2u);            // every word of two letters
  EXPECT_EQ(Make(bytes_and_control + 26 * 26 + 26 * 26 * 26).Encode("zzz").size(), 1u);  // and of three
  const Tokenizer tokenizer = Make(bytes_and_control + 2);
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("abaa")), "abaa");
  EXPECT_EQ(tokenizer.Encode("abaa").size(), 2u);
}

TEST(SyntheticTokenizerTest, KnowsTheControlTokensOfBothChatFormats) {
  const Tokenizer tokenizer = Make(SyntheticVocabMin());
  for (const std::string_view content : {chat_token::kBos, chat_token::kEos, chat_token::kThink, chat_token::kEndThink, chat_token::kSystem,
                                         chat_token::kUser, chat_token::kAssistant, chat_token::kLatestReminder, chat_token::kDsml}) {
    ASSERT_TRUE(tokenizer.FindToken(content)) << content;
    EXPECT_EQ(tokenizer.Encode(content, {.parse_special = true}), std::vector<int32_t>{*tokenizer.FindToken(content)}) << content;
  }
}

TEST(SyntheticTokenizerTest, HasATokenMap) {
  const Tokenizer tokenizer = Make(1000);
  const std::vector<int32_t> map = CompressedTokenMap(tokenizer);
  EXPECT_EQ(map.size(), 1000u);
  EXPECT_EQ(map[2], 2) << "the padding token of Engram";
  EXPECT_LT(NumCompressedIds(map), 1000) << "upper and lower case share an id";
  EXPECT_GT(NumCompressedIds(map), 900);
}

TEST(SyntheticTokenizerTest, RefusesVocabulariesItCannotMake) {
  EXPECT_THROW(SyntheticTokenizerJson(SyntheticVocabMin() - 1), Error);
  EXPECT_THROW(SyntheticTokenizerJson(kSyntheticVocabMax + 1), Error);
}

}  // namespace
}  // namespace tessera
