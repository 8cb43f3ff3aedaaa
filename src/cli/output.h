// Standard output of the commands: written through, and a failure to write (full or read-only device, closed pipe) is an error, not
// silence.
#pragma once

#include <string>
#include <string_view>

#include "core/check.h"

namespace tessera {

// What the user typed cannot be meant: exit code 2.
class UsageProblem : public Error {
 public:
  using Error::Error;
};

// Writes to stdout; throws Error when that fails.
void Print(std::string_view text);
// Print and flush, for text that streams.
void PrintNow(std::string_view text);
void FlushOutput();

}  // namespace tessera
