// Manifold-constrained hyper-connections (spec/model.md section 3): mix coefficients with Sinkhorn, collapse and expand of the streams.
// S = hc_mult streams (at most kHcMultMax), D = hidden size. Coefficients are fp32.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tessera {

constexpr int kHcMultMax = 8;

struct HcMixOptions {
  int hc_mult = 4;
  int sinkhorn_iters = 20;
  float hc_eps = 1e-6f;
};
// Coefficients of one token at one site: pre [S], post [S], comb [S * S] with comb[j * S + k] from source stream j to destination k.
struct HcCoefficients {
  float pre[kHcMultMax];
  float post[kHcMultMax];
  float comb[kHcMultMax * kHcMultMax];
};
// From m = (fn * f) [2S + S^2] (not yet multiplied by r) and r = rsqrt(mean(f^2) + rms_norm_eps).
void HcMix(const float* m, float r, const float* base, const float* scale, const HcMixOptions& options, HcCoefficients* out) noexcept;

// V4's output weights: w[j] = sigmoid(m[j] * r * scale[0] + base[j]) + hc_eps, j < hc_mult.
void HcHeadWeights(const float* m, float r, const float* base, const float* scale, const HcMixOptions& options, float* w) noexcept;

// y[i] = T(sum_s w[s] * x[s * stream_stride + i]) for i < cols, s ascending from zero.
template <class T>
void HcCollapse(const T* x, int64_t stream_stride, const float* w, int hc_mult, int64_t cols, T* y) noexcept;

// In place, with post and comb of the coefficients:
// x[k * stream_stride + i] <- T(post[k] * y[i] + sum_j comb[j * S + k] * x[j * stream_stride + i]), j ascending; i < cols.
template <class T>
void HcExpand(const T* y, const HcCoefficients& coefficients, int hc_mult, int64_t cols, T* x, int64_t stream_stride) noexcept;

}  // namespace tessera
