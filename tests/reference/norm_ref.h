// Slow twin of kernels/norm in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace tessera::testing {

inline double SumOfSquaresRef(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += static_cast<double>(v) * v;
  return sum;
}

// Relative error of a sum of n products of equal sign as the kernels form it, in the worst tier: one rounding for the product; in a chunk
// of 1,024 columns the scalar tier's four sums add a quarter each and meet in two more additions (wider tiers have more sums and up to
// four more levels, but shorter chains); then one addition a chunk.
inline double SumErrorRef(int64_t n) {
  const int64_t in_chunk = (std::min<int64_t>(n, 1024) + 3) / 4 + 6;
  return static_cast<double>(1 + in_chunk + (n + 1023) / 1024) * 0x1p-24;
}

inline std::vector<double> RmsNormRef(const std::vector<float>& x, const std::vector<float>& weight, double eps) {
  const double r = 1 / std::sqrt(SumOfSquaresRef(x) / static_cast<double>(x.size()) + eps);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = weight[i] * (x[i] * r);
  return y;
}
// Relative error of the fp32 form before its rounding to T: half the sum's (square root), mean, eps and root (each counted whole), the
// reciprocal and two products.
inline double RmsNormErrorRef(int64_t n) { return SumErrorRef(n) / 2 + 6 * 0x1p-24; }

// The bf16 chain of V4's head norm for a given mean of the (rounded) squares.
inline double HeadNormMeanRef(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += ToFloat(ToBf16(v * v));
  return sum / static_cast<double>(x.size());
}
inline std::vector<bf16> HeadNormRef(const std::vector<float>& x, double mean, float eps) {
  const float rounded_mean = ToFloat(ToBf16(static_cast<float>(mean)));
  const float shifted = ToFloat(ToBf16(rounded_mean + eps));
  const float r = ToFloat(ToBf16(1.0f / std::sqrt(shifted)));
  std::vector<bf16> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = ToBf16(x[i] * r);
  return y;
}

}  // namespace tessera::testing
