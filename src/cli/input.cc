#include "cli/input.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/check.h"
#include "tokenizer/utf8.h"

namespace tessera {

std::string ReadStandardInput() {
  constexpr size_t kChunkBytes = 64 << 10;
  std::string text;
  while (true) {
    const size_t old_bytes = text.size();
    text.resize(old_bytes + kChunkBytes);
    const size_t read_bytes = std::fread(text.data() + old_bytes, 1, kChunkBytes, stdin);
    text.resize(old_bytes + read_bytes);
    if (text.size() > kTextBytesMax) Fail("standard input holds more than {} bytes", kTextBytesMax);
    if (read_bytes == kChunkBytes) continue;
    if (std::ferror(stdin) != 0) Fail("cannot read standard input: {}", std::strerror(errno));
    return text;
  }
}

bool StandardInputIsTerminal() { return isatty(STDIN_FILENO) == 1; }

void CheckUtf8(const std::string& text, const std::string& what) {
  const size_t valid_bytes = ValidUtf8Prefix(text);
  if (valid_bytes != text.size()) Fail("{}: not valid UTF-8 at byte {}", what, valid_bytes);
}

}  // namespace tessera
