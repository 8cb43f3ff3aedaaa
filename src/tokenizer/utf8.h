// UTF-8 at the two edges of the tokenizer: text going in must be valid, and bytes coming out of tokens, which may be cut anywhere or be
// no UTF-8 at all, become valid text in which U+FFFD stands for each maximal ill-formed part, as in Python's decode("utf-8", "replace").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

// Length of the longest valid prefix of `text`; text.size() when all of it is valid.
size_t ValidUtf8Prefix(std::string_view text);

void AppendUtf8(char32_t code_point, std::string* out);

// The code point that starts at text[*pos], which must be valid UTF-8; moves *pos behind it.
char32_t NextCodePoint(std::string_view text, size_t* pos);

// Repairs a stream of bytes. What was appended to `out` is always valid UTF-8 and never changes later: an incomplete character at the end
// of the bytes so far is held back (three bytes at most) until the next Push or Finish decides it.
class Utf8Repair {
 public:
  void Push(std::string_view bytes, std::string* out);
  void Finish(std::string* out);  // a held-back tail becomes one U+FFFD; the object is as new afterwards

 private:
  char held_[4] = {};
  int num_held_ = 0;
  int num_missing_ = 0;  // continuation bytes the held character still needs
};

}  // namespace tessera
