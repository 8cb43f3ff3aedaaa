// Engram hashes n-grams of compressed ids: tokens that differ only in case, accents, width or surrounding space share one id, so that
// " Walker" and "walker" meet in the same table row. The map is a function of the tokenizer alone (spec/model.md 8.1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace tessera {

// compressed id of each token id [tokenizer.vocab_size()]; ids are consecutive in order of first appearance. Throws Error when ICU has no
// normalisation data.
std::vector<int32_t> CompressedTokenMap(const Tokenizer& tokenizer);
int32_t NumCompressedIds(const std::vector<int32_t>& map);  // largest + 1

// The form in which tokens are compared; may be empty. `text` is valid UTF-8.
std::string NormalizeForEngram(std::string_view text);

}  // namespace tessera
