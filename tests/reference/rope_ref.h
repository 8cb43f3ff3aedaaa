// Slow twin of kernels/rope: one pair at a time in fp32, each operation rounded, as spec/model.md section 4 has it.
#pragma once

#include <vector>

#include "core/dtype.h"

namespace tessera::testing {

template <class T>
std::vector<T> RotateInterleavedRef(std::vector<T> x, const std::vector<float>& cos, const std::vector<float>& sin, bool inverse) {
  for (size_t i = 0; i < x.size() / 2; ++i) {
    const float a = ToFloat(x[2 * i]), b = ToFloat(x[2 * i + 1]);
    const float s = inverse ? -sin[i] : sin[i];
    const float ac = a * cos[i], bs = b * s, as = a * s, bc = b * cos[i];
    x[2 * i] = FromFloat<T>(ac - bs);
    x[2 * i + 1] = FromFloat<T>(as + bc);
  }
  return x;
}

}  // namespace tessera::testing
