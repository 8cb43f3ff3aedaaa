// Twin of kernels/compress.h for one channel, in double, with the error an fp32 evaluation may have.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera::reference {

struct PooledValue {
  double value = 0;
  double error = 0;  // before the rounding to the output type
};

// g - max is off by u |g - max| (u = 2^-24), its exponential by 2 ulp = 4 u more; numerator and denominator are sums of n terms.
inline PooledValue Pool(const std::vector<double>& u_values, const std::vector<double>& logits) {
  const double u = 0x1p-24, n = static_cast<double>(logits.size());
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0, weighted = 0, magnitude = 0, worst = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(logits[i] - max);
    worst = std::max(worst, u * (max - logits[i]) + 4 * u);
    sum += p;
    weighted += p * u_values[i];
    magnitude += p * std::fabs(u_values[i]);
  }
  return {weighted / sum, 2 * (worst + (n + 2) * u) * magnitude / sum};
}

}  // namespace tessera::reference
