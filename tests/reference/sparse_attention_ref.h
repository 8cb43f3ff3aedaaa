// Twin of attention/sparse_attention.h for one row and head: attention over the given vectors in double, then the rotation back.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/attend_ref.h"

namespace tessera::reference {

// `rounding` is the relative error of one rounding to T. The attention's result is rounded to T, and so is each rotated value; a rotation
// is two fp32 products and a sum, so it adds three roundings of the products' magnitudes at most.
template <class T>
AttendResult AttendAndRotateBack(const T* q, View<const T> kv, double sink, bool round_probabilities, const float* cos, const float* sin,
                                 int64_t rope_dims, double rounding) {
  AttendResult result = Attend<T>(q, kv, sink, 1 / std::sqrt(static_cast<double>(kv.cols)), round_probabilities);
  for (size_t c = 0; c < result.out.size(); ++c) result.error[c] += rounding * (std::fabs(result.out[c]) + result.error[c]);
  for (int64_t i = 0; i < rope_dims / 2; ++i) {
    const size_t c = static_cast<size_t>(kv.cols - rope_dims + 2 * i);
    const double a = result.out[c], b = result.out[c + 1], a_error = result.error[c], b_error = result.error[c + 1];
    const double turned[2] = {a * cos[i] + b * sin[i], b * cos[i] - a * sin[i]};
    const double magnitude[2] = {std::fabs(a * cos[i]) + std::fabs(b * sin[i]), std::fabs(b * cos[i]) + std::fabs(a * sin[i])};
    const double carried[2] = {std::fabs(cos[i]) * a_error + std::fabs(sin[i]) * b_error,
                               std::fabs(cos[i]) * b_error + std::fabs(sin[i]) * a_error};
    for (size_t j = 0; j < 2; ++j) {
      const double before = carried[j] + 3 * 0x1p-24 * (magnitude[j] + carried[j]);
      result.out[c + j] = turned[j];
      result.error[c + j] = before + rounding * (std::fabs(turned[j]) + before);
    }
  }
  return result;
}

}  // namespace tessera::reference
