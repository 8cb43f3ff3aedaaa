// JSON as the chat format spells it inside prompts: ", " and ": " between things, keys in order, non-ASCII characters as they are, and
// doubles with their shortest digits. The two versions of the format differ in small doubles only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"

namespace tessera {

enum class DoubleStyle : uint8_t {
  kPadded,    // V4.1: fixed from 1e-4, exponents of two digits at least (1e-05)
  kUnpadded,  // V4: fixed from 1e-5, exponents as short as they are (1e-7)
};

// `value` comes from ParseJson: of a value built otherwise, a signed integer 0 would be taken for the text "-0", which is a double.
void AppendJson(const Json& value, DoubleStyle style, std::string* out);
// With the quotes.
void AppendJsonString(std::string_view text, std::string* out);
// The inside of a string; may be given in parts cut anywhere.
void AppendJsonEscaped(std::string_view text, std::string* out);

}  // namespace tessera
