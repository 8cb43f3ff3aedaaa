// Slow twin of kernels/gather_rows: element by element from bytes.
#pragma once

#include <vector>

#include "core/dtype.h"

namespace tessera::testing {

inline std::vector<float> GatherRowRef(const uint8_t* row, int64_t cols) {
  std::vector<float> y;
  for (int64_t i = 0; i < cols; ++i) y.push_back(ToFloat(bf16{static_cast<uint16_t>(row[2 * i] | (row[2 * i + 1] << 8))}));
  return y;
}

inline std::vector<float> GatherQuantizedRowRef(const uint8_t* codes, const uint8_t* scales, int64_t cols) {
  std::vector<float> y;
  for (int64_t i = 0; i < cols; ++i) y.push_back(E4m3ToFloat(codes[i]) * E8m0ToFloat(scales[i / 32]));
  return y;
}

}  // namespace tessera::testing
