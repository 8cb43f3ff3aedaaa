// The alphabet in which byte-level BPE files spell bytes: each of the 256 bytes is one printable character. The printable Latin-1
// characters stand for themselves, the other 68 bytes are numbered upwards from U+0100 (space is U+0120).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// The bytes that `token` (valid UTF-8) spells; nullopt when a character is not of the alphabet.
std::optional<std::string> BytesFromAlphabet(std::string_view token);
// The spelling of `bytes`.
std::string BytesToAlphabet(std::string_view bytes);

}  // namespace tessera
