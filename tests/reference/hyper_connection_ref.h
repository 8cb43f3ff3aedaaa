// Twin of kernels/hyper_connection.h in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace tessera::reference {

struct HcCoefficients {
  std::vector<double> pre, post, comb;
};

inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

inline HcCoefficients HcMix(const float* m, double r, const float* base, const float* scale, int s, int sinkhorn_iters, double eps) {
  HcCoefficients out;
  for (int j = 0; j < s; ++j) out.pre.push_back(Sigmoid(m[j] * r * scale[0] + base[j]) + eps);
  for (int j = 0; j < s; ++j) out.post.push_back(2 * Sigmoid(m[s + j] * r * scale[1] + base[s + j]));
  std::vector<double>& c = out.comb;
  for (int i = 0; i < s * s; ++i) c.push_back(m[2 * s + i] * r * scale[2] + base[2 * s + i]);
  for (int j = 0; j < s; ++j) {
    const double max = *std::max_element(c.begin() + j * s, c.begin() + (j + 1) * s);
    double sum = 0;
    for (int k = 0; k < s; ++k) sum += c[j * s + k] = std::exp(c[j * s + k] - max);
    for (int k = 0; k < s; ++k) c[j * s + k] = c[j * s + k] / sum + eps;
  }
  // One pass divides by row sums (step 1 between entries of a row) or by column sums (step s).
  const auto normalize = [&](int line_step, int entry_step) {
    for (int line = 0; line < s; ++line) {
      double sum = eps;
      for (int i = 0; i < s; ++i) sum += c[line * line_step + i * entry_step];
      for (int i = 0; i < s; ++i) c[line * line_step + i * entry_step] /= sum;
    }
  };
  normalize(1, s);
  for (int iter = 1; iter < sinkhorn_iters; ++iter) {
    normalize(s, 1);
    normalize(1, s);
  }
  return out;
}

}  // namespace tessera::reference
