// Slow twin of kernels/convert: the quantisers of spec/model.md section 2, block by block from the scalar definitions of core/dtype.h.
// A block that holds a NaN or an infinity has a NaN scale and zero codes.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dtype.h"

namespace tessera::testing {

struct CodesRef {
  std::vector<uint8_t> codes, scales;  // four-bit codes already packed, the even column low
};

enum class QuantizerRef { kQ8, kQ4, kQ4e };

inline uint8_t ScaleRef(QuantizerRef kind, const std::vector<float>& block) {
  float amax = 0;
  for (float v : block) {
    if (!std::isfinite(v)) return kind == QuantizerRef::kQ4e ? 0x7f : 255;
    amax = std::max(amax, std::fabs(v));
  }
  switch (kind) {
    case QuantizerRef::kQ8: return static_cast<uint8_t>(FloatToBits(Pow2Ceil(std::max(amax, 1e-4f) * (1.0f / 448))) >> 23);
    case QuantizerRef::kQ4: return static_cast<uint8_t>(FloatToBits(Pow2Ceil(std::max(amax, 6 * 0x1p-126f) * (1.0f / 6))) >> 23);
    case QuantizerRef::kQ4e: return FloatToE4m3(std::max(amax, 6 * 0x1p-9f) / 6);
  }
  return 255;
}

inline float ScaleValueRef(QuantizerRef kind, uint8_t scale) {
  return kind == QuantizerRef::kQ4e ? E4m3ToFloat(scale) : E8m0ToFloat(scale);
}

inline CodesRef QuantizeRef(QuantizerRef kind, const std::vector<float>& x, size_t block) {
  CodesRef out;
  std::vector<uint8_t> codes;
  for (size_t begin = 0; begin < x.size(); begin += block) {
    const size_t end = std::min(begin + block, x.size());
    const std::vector<float> part(x.begin() + static_cast<int64_t>(begin), x.begin() + static_cast<int64_t>(end));
    out.scales.push_back(ScaleRef(kind, part));
    const float s = ScaleValueRef(kind, out.scales.back());
    for (float v : part) codes.push_back(std::isnan(s) ? 0 : kind == QuantizerRef::kQ8 ? FloatToE4m3(v / s) : FloatToE2m1(v / s));
  }
  if (kind == QuantizerRef::kQ8) {
    out.codes = codes;
    return out;
  }
  out.codes.assign((codes.size() + 1) / 2, 0);
  for (size_t i = 0; i < codes.size(); ++i) out.codes[i / 2] |= static_cast<uint8_t>(codes[i] << (i % 2 * 4));
  return out;
}

// A NaN scale makes its block the plain quiet NaN.
inline std::vector<float> DequantizeRef(QuantizerRef kind, const CodesRef& in, size_t cols, size_t block) {
  std::vector<float> x(cols);
  for (size_t i = 0; i < cols; ++i) {
    const uint8_t scale = in.scales[i / block];
    const float s = ScaleValueRef(kind, scale);
    const float value = kind == QuantizerRef::kQ8 ? E4m3ToFloat(in.codes[i]) : E2m1ToFloat((in.codes[i / 2] >> (i % 2 * 4)) & 15);
    x[i] = std::isnan(s) ? BitsToFloat(0x7fc00000u) : value * s;
  }
  return x;
}

}  // namespace tessera::testing
