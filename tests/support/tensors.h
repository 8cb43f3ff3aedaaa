// Reads a safetensors file of expected values for a test, by its own few lines: the product's reader is among the things tested.
#pragma once

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/json.h"

namespace tessera::testing {

// Path below the repository root.
inline std::string SourcePath(const std::string& relative) { return std::string(TESSERA_SOURCE_DIR) + "/" + relative; }

struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;

  template <class T>
  std::vector<T> As() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
};

inline std::map<std::string, Tensor> ReadTensors(const std::string& relative) {
  std::ifstream file(SourcePath(relative), std::ios::binary);
  if (!file) throw std::runtime_error("no such file: " + relative);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, all.data(), 8);
  const Json header = Json::parse(all.substr(8, header_bytes));  // named: a temporary would not live as long as the loop over it
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    tensors[name] = {entry["dtype"], entry["shape"].get<std::vector<int64_t>>(), all.substr(8 + header_bytes + begin, end - begin)};
  }
  return tensors;
}

}  // namespace tessera::testing
