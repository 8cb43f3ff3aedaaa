// Engram's gated addition to the residual streams (spec/model.md section 8.5), fp32 inside, one rounding to T.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tessera {

struct StreamGateOptions {
  int hc_mult = 4;
  int64_t hidden = 0;
  float eps = 0;  // rms_norm_eps
};
// For each stream s: r = rsqrt(mean(x_s^2) + eps) * rsqrt(mean(key_s^2) + eps); dot = sum_i(x_s q_s k_s key_s) * r * hidden^-1/2;
// gate_s = sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot)); x_s <- T(x_s + gate_s * value).
// x: [hc_mult, hidden]; kv: [(hc_mult + 1) * hidden] = the keys, then the value; qk_weight: [hc_mult, hidden] = fp32 q_weight * k_weight.
// gates: [hc_mult], may be read by dumps.
template <class T>
void StreamGate(T* x, const T* kv, const float* qk_weight, const StreamGateOptions& options, float* gates) noexcept;

}  // namespace tessera
