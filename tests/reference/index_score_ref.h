// Index scores in double, and (rounded form) with the reference's bf16 roundings applied to given dots.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace tessera::testing {

// sum_h a[h] * max(0, dots[h][j]); `magnitude` receives sum_h |a[h]| * |dots[h][j]|.
inline double IndexScoreRef(const std::vector<double>& dots, const std::vector<float>& head_weights, double* magnitude) {
  double sum = 0;
  *magnitude = 0;
  for (size_t head_idx = 0; head_idx < dots.size(); ++head_idx) {
    sum += head_weights[head_idx] * std::max(0.0, dots[head_idx]);
    *magnitude += std::fabs(head_weights[head_idx] * dots[head_idx]);
  }
  return sum;
}

// The dot, its product with a and the sum are each rounded to bf16; the sum runs in fp32, heads ascending (spec/model.md section 11).
inline float RoundedIndexScoreRef(const std::vector<float>& dots, const std::vector<float>& head_weights) {
  float sum = 0;
  for (size_t head_idx = 0; head_idx < dots.size(); ++head_idx) {
    const float dot = std::max(0.0f, ToFloat(ToBf16(dots[head_idx])));
    sum += ToFloat(ToBf16(head_weights[head_idx] * dot));
  }
  return ToFloat(ToBf16(sum));
}

}  // namespace tessera::testing
