#include "kernels/hyper_connection.h"

#include "kernels/vec.h"

namespace tessera::TSR_TIER {
namespace {

// One register of columns, full or the first `count` lanes; the arithmetic of a column is the same in both.
struct Full {
  template <class T>
  Vec From(const T* p) const { return Load(p); }
  template <class T>
  void To(Vec v, T* p) const { Store(v, p); }
};
struct Partial {
  int count;
  template <class T>
  Vec From(const T* p) const { return Load(p, count); }
  template <class T>
  void To(Vec v, T* p) const { Store(v, p, count); }
};

template <int S, class Columns, class T>
inline void Collapse(const Columns& columns, const T* x, int64_t stream_stride, const float* w, T* y) {
  Vec sum = Zero();
  for (int s = 0; s < S; ++s) sum = MulAdd(Set1(w[s]), columns.From(x + s * stream_stride), sum);
  columns.To(sum, y);
}

template <int S, class Columns, class T>
inline void Expand(const Columns& columns, const T* y, const HcCoefficients& coefficients, T* x, int64_t stream_stride) {
  Vec old[S];
  for (int j = 0; j < S; ++j) old[j] = columns.From(x + j * stream_stride);
  const Vec added = columns.From(y);
  for (int k = 0; k < S; ++k) {
    Vec sum = Set1(coefficients.post[k]) * added;
    for (int j = 0; j < S; ++j) sum = MulAdd(Set1(coefficients.comb[j * S + k]), old[j], sum);
    columns.To(sum, x + k * stream_stride);
  }
}

template <int S, class T>
void CollapseAll(const T* x, int64_t stream_stride, const float* w, int64_t cols, T* y) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) Collapse<S>(Full{}, x + i, stream_stride, w, y + i);
  if (i < cols) Collapse<S>(Partial{static_cast<int>(cols - i)}, x + i, stream_stride, w, y + i);
}

template <int S, class T>
void ExpandAll(const T* y, const HcCoefficients& coefficients, int64_t cols, T* x, int64_t stream_stride) {
  int64_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) Expand<S>(Full{}, y + i, coefficients, x + i, stream_stride);
  if (i < cols) Expand<S>(Partial{static_cast<int>(cols - i)}, y + i, coefficients, x + i, stream_stride);
}

// Calls body with the number of streams as a compile-time constant, so that the streams of a column stay in registers.
template <int S = kHcMultMax, class Body>
void WithStreams(int hc_mult, const Body& body) {
  if (hc_mult == S) return body(std::integral_constant<int, S>{});
  if constexpr (S > 1) WithStreams<S - 1>(hc_mult, body);
}

template <class T>
void CollapseAny(const T* x, int64_t stream_stride, const float* w, int hc_mult, int64_t cols, T* y) {
  WithStreams(hc_mult, [&](auto streams) { CollapseAll<streams()>(x, stream_stride, w, cols, y); });
}
template <class T>
void ExpandAny(const T* y, const HcCoefficients& coefficients, int hc_mult, int64_t cols, T* x, int64_t stream_stride) {
  WithStreams(hc_mult, [&](auto streams) { ExpandAll<streams()>(y, coefficients, cols, x, stream_stride); });
}

}  // namespace

void CollapseColumns(const bf16* x, int64_t stream_stride, const float* w, int hc_mult, int64_t cols, bf16* y) noexcept {
  CollapseAny(x, stream_stride, w, hc_mult, cols, y);
}
void CollapseColumns(const float* x, int64_t stream_stride, const float* w, int hc_mult, int64_t cols, float* y) noexcept {
  CollapseAny(x, stream_stride, w, hc_mult, cols, y);
}
void ExpandColumns(const bf16* y, const HcCoefficients& coefficients, int hc_mult, int64_t cols, bf16* x,
                   int64_t stream_stride) noexcept {
  ExpandAny(y, coefficients, hc_mult, cols, x, stream_stride);
}
void ExpandColumns(const float* y, const HcCoefficients& coefficients, int hc_mult, int64_t cols, float* x,
                   int64_t stream_stride) noexcept {
  ExpandAny(y, coefficients, hc_mult, cols, x, stream_stride);
}

}  // namespace tessera::TSR_TIER
