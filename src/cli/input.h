// What commands read: standard input, and text files that must be UTF-8.
#pragma once

#include <cstddef>
#include <string>

namespace tessera {

inline constexpr size_t kTextBytesMax = size_t{1} << 30;

// All of standard input. Throws Error when it cannot be read or holds more than kTextBytesMax.
std::string ReadStandardInput();
bool StandardInputIsTerminal();

// Throws Error "<what>: not valid UTF-8 at byte N".
void CheckUtf8(const std::string& text, const std::string& what);

}  // namespace tessera
