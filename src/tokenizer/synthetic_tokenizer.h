// A tokenizer for checkpoints that nobody trained: byte-level BPE of any vocabulary size from 266 up, so that a random model takes text,
// chats, and has the token map that Engram's hashes need. Ids are, in order: begin, end and padding; the 256 bytes; words of two, three,
// four ... lower-case letters, each merged from the word before its last letter and that letter; the other control tokens of the chat
// formats, last, as released vocabularies have them.
#pragma once

#include <cstdint>
#include <string>

namespace tessera {

// The content of tokenizer.json. Throws Error for a vocabulary below SyntheticVocabMin() or above kSyntheticVocabMax.
std::string SyntheticTokenizerJson(int64_t vocab_size);
// The content of tokenizer_config.json.
std::string SyntheticTokenizerConfigJson();

// The bytes and the control tokens.
int64_t SyntheticVocabMin();
constexpr int64_t kSyntheticVocabMax = int64_t{1} << 20;  // keeps the file below what the reader takes

}  // namespace tessera
