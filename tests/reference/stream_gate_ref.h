// Slow twin of kernels/stream_gate in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera::testing {

struct StreamDotRef {
  double dot = 0;        // normalised, as it enters the gate
  double magnitude = 0;  // the same sum over absolute values: what its rounding errors are relative to
};

inline StreamDotRef StreamDot(const float* x, const float* key, const float* qk_weight, int64_t hidden, double eps) {
  double x_squares = 0, key_squares = 0;
  StreamDotRef result;
  for (int64_t i = 0; i < hidden; ++i) {
    const double product = static_cast<double>(x[i]) * qk_weight[i] * key[i];
    x_squares += static_cast<double>(x[i]) * x[i];
    key_squares += static_cast<double>(key[i]) * key[i];
    result.dot += product;
    result.magnitude += std::fabs(product);
  }
  const double n = static_cast<double>(hidden);
  const double r = 1 / std::sqrt(x_squares / n + eps) / std::sqrt(key_squares / n + eps) / std::sqrt(n);
  result.dot *= r;
  result.magnitude *= r;
  return result;
}

// Not decreasing in dot, with a step of 2 * sqrt(1e-6) / 4 at 0.
inline double StreamGateRef(double dot) {
  const double root = std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot);
  return 1 / (1 + std::exp(-root));
}

}  // namespace tessera::testing
