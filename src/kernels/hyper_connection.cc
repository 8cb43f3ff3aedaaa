#include "kernels/hyper_connection.h"

#include <cmath>

#include "core/check.h"
#include "kernels/tier.h"

namespace tessera {

TSR_DECLARE_TIERS(
    void CollapseColumns(const bf16* x, int64_t stream_stride, const float* w, int hc_mult, int64_t cols, bf16* y) noexcept;
    void CollapseColumns(const float* x, int64_t stream_stride, const float* w, int hc_mult, int64_t cols, float* y) noexcept;
    void ExpandColumns(const bf16* y, const HcCoefficients& coefficients, int hc_mult, int64_t cols, bf16* x,
                       int64_t stream_stride) noexcept;
    void ExpandColumns(const float* y, const HcCoefficients& coefficients, int hc_mult, int64_t cols, float* x,
                       int64_t stream_stride) noexcept;)

namespace {

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

void SoftmaxRows(int s, float eps, float* c) {
  for (int j = 0; j < s; ++j) {
    float* row = c + j * s;
    float max = row[0];
    for (int k = 1; k < s; ++k) max = row[k] > max ? row[k] : max;
    float sum = 0;
    for (int k = 0; k < s; ++k) sum += row[k] = std::exp(row[k] - max);
    for (int k = 0; k < s; ++k) row[k] = row[k] / sum + eps;
  }
}

void NormalizeRows(int s, float eps, float* c) {
  for (int j = 0; j < s; ++j) {
    float sum = 0;
    for (int k = 0; k < s; ++k) sum += c[j * s + k];
    for (int k = 0; k < s; ++k) c[j * s + k] /= sum + eps;
  }
}

void NormalizeColumns(int s, float eps, float* c) {
  float sum[kHcMultMax] = {};
  for (int j = 0; j < s; ++j)
    for (int k = 0; k < s; ++k) sum[k] += c[j * s + k];
  for (int j = 0; j < s; ++j)
    for (int k = 0; k < s; ++k) c[j * s + k] /= sum[k] + eps;
}

}  // namespace

void HcMix(const float* m, float r, const float* base, const float* scale, const HcMixOptions& options, HcCoefficients* out) noexcept {
  const int s = options.hc_mult;
  TSR_CHECK(s >= 1 && s <= kHcMultMax && options.sinkhorn_iters >= 1, "hc_mult {}, sinkhorn_iters {}", s, options.sinkhorn_iters);
  for (int j = 0; j < s; ++j) out->pre[j] = Sigmoid(m[j] * r * scale[0] + base[j]) + options.hc_eps;
  for (int j = 0; j < s; ++j) out->post[j] = 2 * Sigmoid(m[s + j] * r * scale[1] + base[s + j]);
  for (int i = 0; i < s * s; ++i) out->comb[i] = m[2 * s + i] * r * scale[2] + base[2 * s + i];
  SoftmaxRows(s, options.hc_eps, out->comb);
  NormalizeColumns(s, options.hc_eps, out->comb);
  for (int iter = 1; iter < options.sinkhorn_iters; ++iter) {
    NormalizeRows(s, options.hc_eps, out->comb);
    NormalizeColumns(s, options.hc_eps, out->comb);
  }
}

void HcHeadWeights(const float* m, float r, const float* base, const float* scale, const HcMixOptions& options, float* w) noexcept {
  for (int j = 0; j < options.hc_mult; ++j) w[j] = Sigmoid(m[j] * r * scale[0] + base[j]) + options.hc_eps;
}

template <class T>
void HcCollapse(const T* x, int64_t stream_stride, const float* w, int hc_mult, int64_t cols, T* y) noexcept {
  TSR_CHECK(hc_mult >= 1 && hc_mult <= kHcMultMax && cols >= 0 && stream_stride >= cols, "hc_mult {}, cols {}, stream_stride {}", hc_mult,
            cols, stream_stride);
  TSR_DISPATCH(CollapseColumns(x, stream_stride, w, hc_mult, cols, y));
}

template <class T>
void HcExpand(const T* y, const HcCoefficients& coefficients, int hc_mult, int64_t cols, T* x, int64_t stream_stride) noexcept {
  TSR_CHECK(hc_mult >= 1 && hc_mult <= kHcMultMax && cols >= 0 && stream_stride >= cols, "hc_mult {}, cols {}, stream_stride {}", hc_mult,
            cols, stream_stride);
  TSR_DISPATCH(ExpandColumns(y, coefficients, hc_mult, cols, x, stream_stride));
}

template void HcCollapse(const bf16*, int64_t, const float*, int, int64_t, bf16*) noexcept;
template void HcCollapse(const float*, int64_t, const float*, int, int64_t, float*) noexcept;
template void HcExpand(const bf16*, const HcCoefficients&, int, int64_t, bf16*, int64_t) noexcept;
template void HcExpand(const float*, const HcCoefficients&, int, int64_t, float*, int64_t) noexcept;

}  // namespace tessera
