#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace tessera {

void AddedTokenMatcher::Add(std::string content, int32_t id) {
  starts_[static_cast<uint8_t>(content[0])] = true;
  tokens_.emplace_back(std::move(content), id);
}

void AddedTokenMatcher::Sort() { std::sort(tokens_.begin(), tokens_.end()); }

AddedTokenMatcher::Match AddedTokenMatcher::Find(std::string_view text, size_t from) const {
  Match best;
  for (size_t begin = from; begin < text.size() && best.id < 0; ++begin) {
    if (!starts_[static_cast<uint8_t>(text[begin])]) continue;
    // [low, high) are the tokens that agree with the text so far; each further byte narrows it.
    auto low = tokens_.begin();
    auto high = tokens_.end();
    for (size_t length = 0; begin + length < text.size(); ++length) {
      const auto byte = static_cast<uint8_t>(text[begin + length]);
      const auto byte_of = [length](const auto& token) { return static_cast<uint8_t>(token.first[length]); };
      low = std::partition_point(low, high, [&](const auto& token) { return token.first.size() <= length || byte_of(token) < byte; });
      high = std::partition_point(low, high, [&](const auto& token) { return byte_of(token) == byte; });
      if (low == high) break;
      if (low->first.size() == length + 1) best = {begin, begin + length + 1, low->second};
    }
  }
  return best;
}

}  // namespace tessera
