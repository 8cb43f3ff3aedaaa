#include "tokenizer/utf8.h"

#include <cstring>

namespace tessera {
namespace {

// Continuation bytes that follow a lead byte; 0 for ASCII, -1 for a byte that cannot start a character.
int NumContinuations(uint8_t lead) {
  if (lead < 0x80) return 0;
  if (lead < 0xc2) return -1;  // a continuation byte, or an overlong form of ASCII
  if (lead < 0xe0) return 1;
  if (lead < 0xf0) return 2;
  return lead < 0xf5 ? 3 : -1;
}

// The second byte is narrower after four leads: no overlong forms (E0, F0), no surrogates (ED), nothing above U+10FFFF (F4).
bool IsSecondByte(uint8_t lead, uint8_t second) {
  switch (lead) {
    case 0xe0: return second >= 0xa0 && second <= 0xbf;
    case 0xed: return second >= 0x80 && second <= 0x9f;
    case 0xf0: return second >= 0x90 && second <= 0xbf;
    case 0xf4: return second >= 0x80 && second <= 0x8f;
    default: return (second & 0xc0) == 0x80;
  }
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint64_t word = 0;
    if (i + 8 <= text.size()) {
      std::memcpy(&word, text.data() + i, 8);
      if ((word & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const auto lead = static_cast<uint8_t>(text[i]);
    const int num_continuations = NumContinuations(lead);
    if (num_continuations < 0 || i + static_cast<size_t>(num_continuations) >= text.size()) return i;
    for (int k = 1; k <= num_continuations; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      if (k == 1 ? !IsSecondByte(lead, byte) : (byte & 0xc0) != 0x80) return i;
    }
    i += 1 + static_cast<size_t>(num_continuations);
  }
  return i;
}

void AppendUtf8(char32_t code_point, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  const uint32_t c = code_point;
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6);
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

char32_t NextCodePoint(std::string_view text, size_t* pos) {
  const auto lead = static_cast<uint8_t>(text[(*pos)++]);
  const int num_continuations = NumContinuations(lead);
  if (num_continuations <= 0) return lead;
  char32_t code_point = lead & (0x3fu >> num_continuations);
  for (int k = 0; k < num_continuations; ++k) code_point = code_point << 6 | (static_cast<uint8_t>(text[(*pos)++]) & 0x3fu);
  return code_point;
}

void Utf8Repair::Push(std::string_view bytes, std::string* out) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (num_held_ > 0) {
      const bool fits = num_held_ == 1 ? IsSecondByte(static_cast<uint8_t>(held_[0]), byte) : (byte & 0xc0) == 0x80;
      if (fits) {
        held_[num_held_++] = bytes[i];
        if (--num_missing_ > 0) continue;
        out->append(held_, static_cast<size_t>(num_held_));
        num_held_ = 0;
        continue;
      }
      Finish(out);  // the part so far is ill-formed; this byte starts afresh
    }
    num_missing_ = NumContinuations(byte);
    if (num_missing_ == 0) {
      out->push_back(bytes[i]);
    } else if (num_missing_ < 0) {
      out->append(kReplacementCharacter);
    } else {
      held_[0] = bytes[i];
      num_held_ = 1;
    }
  }
}

void Utf8Repair::Finish(std::string* out) {
  if (num_held_ > 0) out->append(kReplacementCharacter);
  num_held_ = 0;
  num_missing_ = 0;
}

}  // namespace tessera
