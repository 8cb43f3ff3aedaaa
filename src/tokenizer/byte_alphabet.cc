#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/utf8.h"

namespace tessera {
namespace {

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 256 + 68> byte{};  // by code point; -1 where no byte is spelled so
};

Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  char32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    alphabet.character[b] = printable ? b : next++;
    alphabet.byte[alphabet.character[b]] = static_cast<int16_t>(b);
  }
  return alphabet;
}

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet = MakeAlphabet();
  return alphabet;
}

}  // namespace

std::optional<std::string> BytesFromAlphabet(std::string_view token) {
  const Alphabet& alphabet = TheAlphabet();
  std::string bytes;
  for (size_t pos = 0; pos < token.size();) {
    const char32_t c = NextCodePoint(token, &pos);
    if (c >= alphabet.byte.size() || alphabet.byte[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet.byte[c]));
  }
  return bytes;
}

std::string BytesToAlphabet(std::string_view bytes) {
  std::string token;
  for (const char byte : bytes) AppendUtf8(TheAlphabet().character[static_cast<uint8_t>(byte)], &token);
  return token;
}

}  // namespace tessera
