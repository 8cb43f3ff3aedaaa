#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tessera {

void Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) Fail("cannot write to standard output: {}", std::strerror(errno));
}

void PrintNow(std::string_view text) {
  Print(text);
  FlushOutput();
}

void FlushOutput() {
  if (std::fflush(stdout) != 0) Fail("cannot write to standard output: {}", std::strerror(errno));
}

}  // namespace tessera
