#include "kernels/sum-inl.h"
#include "kernels/stream_gate.h"

namespace tessera::TSR_TIER {
namespace {

struct StreamSums {
  float x_squares, key_squares, products;
};

template <class T>
StreamSums SumStream(const T* x, const T* key, const float* qk_weight, int64_t hidden) {
  float totals[3];
  SumRow<3>(hidden, [&](int64_t i, auto part, Vec* sums) {
    const Vec v = Load(x + i, part), k = Load(key + i, part);
    sums[0] = MulAdd(v, v, sums[0]);
    sums[1] = MulAdd(k, k, sums[1]);
    sums[2] = MulAdd(v * Load(qk_weight + i, part), k, sums[2]);
  }, totals);
  return {totals[0], totals[1], totals[2]};
}

float GateOf(const StreamSums& sums, float hidden, float eps) {
  const float r = 1.0f / std::sqrt(sums.x_squares / hidden + eps) * (1.0f / std::sqrt(sums.key_squares / hidden + eps));
  const float dot = sums.products * r * (1.0f / std::sqrt(hidden));
  const float root = std::sqrt(std::fabs(dot) < 1e-6f ? 1e-6f : std::fabs(dot));
  float gate[kLanes];
  Store(Sigmoid(Set1(std::copysign(root, dot))), gate);
  return gate[0];
}

}  // namespace

template <class T>
void StreamGateRow(T* x, const T* kv, const float* qk_weight, const StreamGateOptions& options, float* gates) noexcept {
  const int64_t hidden = options.hidden;
  const T* value = kv + options.hc_mult * hidden;
  for (int s = 0; s < options.hc_mult; ++s) {
    T* stream = x + s * hidden;
    gates[s] = GateOf(SumStream(stream, kv + s * hidden, qk_weight + s * hidden, hidden), static_cast<float>(hidden), options.eps);
    const Vec gate = Set1(gates[s]);
    ForEachVec(hidden, [&](int64_t i, auto part) { Store(Load(stream + i, part) + gate * Load(value + i, part), stream + i, part); });
  }
}

template void StreamGateRow(bf16*, const bf16*, const float*, const StreamGateOptions&, float*) noexcept;
template void StreamGateRow(float*, const float*, const float*, const StreamGateOptions&, float*) noexcept;

}  // namespace tessera::TSR_TIER
