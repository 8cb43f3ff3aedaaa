// Twin of moe/experts.h for one row: two matrix products around the gated activation, in double, with the error that follows from the
// bounds of the kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "moe/experts.h"
#include "reference/matmul_ref.h"
#include "reference/swiglu_ref.h"

namespace tessera::reference {

struct ExpertResult {
  std::vector<double> out, error;
};

// `rounding`: relative error of one rounding to T.
//  * g and u are products of the kernel: MatMulTolerance, the rounding to T included.
//  * |silu'| < 1.1 and the clamps do not widen errors, so h moves by w (1.1 e_g |u| + |silu(g)| e_u + 1.1 e_g e_u); its evaluation adds
//    eight fp32 roundings and the one to T.
//  * w2 carries errors by its magnitudes, and its own bound applies to what it is given.
template <class T>
ExpertResult RunExpert(const ExpertWeights& expert, View<const T> x, float limit, double weight, double rounding) {
  using testing::MatMulTolerance;
  constexpr bool kNarrow = sizeof(T) == 2;
  const testing::MatMulRef gate = testing::MatMulReference(x, expert.w1), up = testing::MatMulReference(x, expert.w3);
  std::vector<double> hidden, hidden_error;
  for (size_t i = 0; i < gate.values.size(); ++i) {
    const double gate_error = MatMulTolerance(expert.w1.cols, gate.magnitudes[i], gate.values[i], kNarrow);
    const double up_error = MatMulTolerance(expert.w3.cols, up.magnitudes[i], up.values[i], kNarrow);
    const double h = testing::SwiGluRef(gate.values[i], up.values[i], limit, weight);
    const double silu = std::fabs(testing::SwiGluRef(gate.values[i], 1, std::max(limit, 1.0f), 1));
    const double moved =
        weight * (1.1 * gate_error * std::min<double>(std::fabs(up.values[i]), limit) + silu * up_error + 1.1 * gate_error * up_error);
    hidden.push_back(h);
    hidden_error.push_back(moved + (8 * 0x1p-24 + rounding) * (std::fabs(h) + moved));
  }
  ExpertResult result;
  for (int64_t n = 0; n < expert.w2.rows; ++n) {
    double value = 0, magnitude = 0, moved = 0;
    for (int64_t k = 0; k < expert.w2.cols; ++k) {
      const double w = testing::WeightRef(expert.w2, n, k);
      value += w * hidden[static_cast<size_t>(k)];
      magnitude += std::fabs(w) * (std::fabs(hidden[static_cast<size_t>(k)]) + hidden_error[static_cast<size_t>(k)]);
      moved += std::fabs(w) * hidden_error[static_cast<size_t>(k)];
    }
    result.out.push_back(value);
    result.error.push_back(moved + MatMulTolerance(expert.w2.cols, magnitude, std::fabs(value) + moved, kNarrow));
  }
  return result;
}

}  // namespace tessera::reference
