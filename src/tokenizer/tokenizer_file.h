// tokenizer.json as plain data. The vocabulary and the merges (127,000 entries each in a real file) go straight into arrays while the text
// is parsed; everything else, a few hundred values, becomes a Json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"

namespace tessera {

struct TokenizerFile {
  struct AddedToken {
    int32_t id = 0;
    std::string content;
    bool special = false;
    bool normalized = false;
  };
  std::vector<std::pair<std::string, int32_t>> vocab;         // (token in the byte alphabet, id), in file order
  std::vector<std::pair<std::string, std::string>> merges;    // best first
  std::vector<AddedToken> added_tokens;
  Json pre_tokenizer;
  int32_t num_ids = 0;  // largest id + 1
};

// Throws Error "<what>: ..." for text that is no JSON, is no byte-level BPE, uses a feature this tokenizer does not have, or whose ids are
// negative, duplicated or so sparse that a table over them would be more than twice the number of tokens.
TokenizerFile ParseTokenizerFile(std::string_view json, const std::string& what);

}  // namespace tessera
