#include "tokenizer/synthetic_tokenizer.h"

#include <array>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/json.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/chat_format.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 3> kFirstTokens = {chat_token::kBos, chat_token::kEos, "<｜▁pad▁｜>"};
struct ControlToken {
  std::string_view content;
  bool special;
};
constexpr std::array<ControlToken, 7> kLastTokens = {{{chat_token::kSystem, true},
                                                      {chat_token::kUser, true},
                                                      {chat_token::kAssistant, true},
                                                      {chat_token::kLatestReminder, true},
                                                      {chat_token::kThink, false},
                                                      {chat_token::kEndThink, false},
                                                      {chat_token::kDsml, false}}};
constexpr int64_t kNumBytes = 256;
constexpr int64_t kNumLetters = 26;

Json AddedToken(int64_t id, std::string_view content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Word `word_idx` of the lower-case words of two letters or more, shorter ones first, in alphabetical order within a length.
std::string WordAt(int64_t word_idx) {
  size_t length = 2;
  int64_t num_words = kNumLetters * kNumLetters;
  while (word_idx >= num_words) {
    word_idx -= num_words;
    num_words *= kNumLetters;
    ++length;
  }
  std::string word(length, 'a');
  for (size_t i = length; i-- > 0; word_idx /= kNumLetters) word[i] = static_cast<char>('a' + word_idx % kNumLetters);
  return word;
}

}  // namespace

int64_t SyntheticVocabMin() { return static_cast<int64_t>(kFirstTokens.size() + kLastTokens.size()) + kNumBytes; }

std::string SyntheticTokenizerJson(int64_t vocab_size) {
  if (vocab_size < SyntheticVocabMin() || vocab_size > kSyntheticVocabMax) {
    Fail("a vocabulary of {}: generated tokenizers have {} (the bytes and the control tokens) to {}", vocab_size, SyntheticVocabMin(),
         kSyntheticVocabMax);
  }
  Json added = Json::array();
  int64_t id = 0;
  // Words and bytes are escaped and written by hand: Json looks a key up before it adds one, and there are up to a million.
  std::string vocab, merges;
  const auto add_to_vocab = [&](const std::string& spelling) {
    vocab += fmt::format("{}{}:{}", vocab.empty() ? "" : ",", Json(spelling).dump(), id++);
  };
  for (const std::string_view content : kFirstTokens) {
    added.push_back(AddedToken(id, content, true));
    add_to_vocab(std::string(content));
  }
  for (int64_t byte = 0; byte < kNumBytes; ++byte) add_to_vocab(BytesToAlphabet(std::string(1, static_cast<char>(byte))));
  const int64_t num_words = vocab_size - SyntheticVocabMin();
  for (int64_t word_idx = 0; word_idx < num_words; ++word_idx) {
    const std::string word = WordAt(word_idx);
    merges += fmt::format("{}\"{} {}\"", merges.empty() ? "" : ",", word.substr(0, word.size() - 1), word.back());
    add_to_vocab(word);
  }
  for (const ControlToken& token : kLastTokens) added.push_back(AddedToken(id++, token.content, token.special));
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return fmt::format(
      "{{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":{0},\"normalizer\":null,\"pre_tokenizer\":{1},"
      "\"post_processor\":{1},\"decoder\":{1},\"model\":{{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
      "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,"
      "\"vocab\":{{{2}}},\"merges\":[{3}]}}}}\n",
      added.dump(), byte_level.dump(), vocab, merges);
}

std::string SyntheticTokenizerConfigJson() {
  const Json json = {{"add_bos_token", false},        {"add_eos_token", false},       {"bos_token", chat_token::kBos},
                     {"eos_token", chat_token::kEos}, {"pad_token", kFirstTokens[2]}, {"tokenizer_class", "PreTrainedTokenizerFast"}};
  return json.dump(2) + "\n";
}

}  // namespace tessera
