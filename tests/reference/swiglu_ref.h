// Slow twin of kernels/swiglu in double.
#pragma once

#include <algorithm>
#include <cmath>

namespace tessera::testing {

inline double SwiGluRef(double g, double u, double limit, double weight) {
  const double gate = std::min(g, limit), up = std::clamp(u, -limit, limit);
  return weight * (gate / (1 + std::exp(-gate)) * up);
}

inline double SqrtSoftplusRef(double x) { return std::sqrt(x > 20 ? x : std::log1p(std::exp(x))); }

}  // namespace tessera::testing
