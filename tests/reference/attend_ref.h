// Twin of kernels/attend.h for one head, in double, with the error an fp32 evaluation in any fixed order may have.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dtype.h"
#include "core/view.h"

namespace tessera::reference {

struct AttendResult {
  std::vector<double> out;
  std::vector<double> error;  // bound of |fp32 result - out|, before the rounding to T
};

// The bound: u = 2^-24. A score is a dot of d products, so it is off by at most (d + 4) u sum|q k| scale, and s - m by u |s - m| more; the
// exponential adds 2 ulp. A common factor in all exponentials (the rounding of m) cancels in the quotient. Numerator and denominator are
// sums of n terms, each within (n + 2) u of its sum of absolute values. With round_probabilities a weight whose distance from a
// tie is below its own error may round the other way, by one bf16 step of 2^-7.
template <class T>
AttendResult Attend(const T* q, View<const T> kv, double sink, double scale, bool round_probabilities) {
  const double u = 0x1p-24;
  const double d = static_cast<double>(kv.cols), n = static_cast<double>(kv.rows);
  std::vector<double> score(static_cast<size_t>(kv.rows)), magnitude(score.size());
  for (int64_t e = 0; e < kv.rows; ++e) {
    for (int64_t c = 0; c < kv.cols; ++c) {
      const double product = static_cast<double>(ToFloat(q[c])) * static_cast<double>(ToFloat(kv.Row(e)[c])) * scale;
      score[e] += product;
      magnitude[e] += std::fabs(product);
    }
  }
  const double max = *std::max_element(score.begin(), score.end());
  AttendResult result{std::vector<double>(static_cast<size_t>(kv.cols)), std::vector<double>(static_cast<size_t>(kv.cols))};
  std::vector<double> absolute(result.out.size());
  double denominator = std::exp(sink - max), worst = u * std::fabs(sink - max) + 4 * u;
  for (int64_t e = 0; e < kv.rows; ++e) {
    const double p = std::exp(score[e] - max);
    const double relative = (d + 4) * u * magnitude[e] + u * std::fabs(score[e] - max) + 4 * u;
    worst = std::max(worst, relative);
    denominator += p;
    double weight = p, flip = 0;
    if (round_probabilities) {
      weight = ToFloat(ToBf16(static_cast<float>(p)));
      const double step = std::exp2(std::floor(std::log2(p)) - 7);
      if (std::fabs(std::fabs(p - weight) - step / 2) <= 2 * relative * p) flip = step;
    }
    for (int64_t c = 0; c < kv.cols; ++c) {
      const double value = ToFloat(kv.Row(e)[c]);
      result.out[c] += weight * value;
      result.error[c] += flip * std::fabs(value);
      absolute[c] += weight * std::fabs(value);
    }
  }
  for (size_t c = 0; c < result.out.size(); ++c) {
    result.out[c] /= denominator;
    result.error[c] = result.error[c] / denominator + (2 * worst + 2 * (n + 4) * u) * absolute[c] / denominator;
  }
  return result;
}

}  // namespace tessera::reference
