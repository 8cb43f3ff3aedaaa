// The compressed token map of the golden V4.1 checkpoint as its reference computed it: for tests below the tokenizer.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/tensors.h"

namespace tessera::testing {

inline std::vector<int32_t> GoldenTokenMap() {
  std::ifstream file(SourcePath("tests/golden/v41_tiny/engram_token_map.i32"), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<int32_t> map(bytes.size() / sizeof(int32_t));
  std::memcpy(map.data(), bytes.data(), map.size() * sizeof(int32_t));
  return map;
}

}  // namespace tessera::testing
