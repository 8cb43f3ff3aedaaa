// Slow twin of kernels/hadamard: the matrix with H[i][j] = (-1)^popcount(i & j), in double.
#pragma once

#include <bit>
#include <cmath>
#include <vector>

namespace tessera::testing {

inline std::vector<double> HadamardRef(const std::vector<float>& x) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) y[i] += std::popcount(i & j) % 2 == 0 ? x[j] : -x[j];
    y[i] /= std::sqrt(static_cast<double>(x.size()));
  }
  return y;
}

}  // namespace tessera::testing
