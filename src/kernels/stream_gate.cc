#include "kernels/stream_gate.h"

#include "core/check.h"
#include "kernels/tier.h"

namespace tessera {

TSR_DECLARE_TIERS(
    template <class T>
    void StreamGateRow(T* x, const T* kv, const float* qk_weight, const StreamGateOptions& options, float* gates) noexcept;)

template <class T>
void StreamGate(T* x, const T* kv, const float* qk_weight, const StreamGateOptions& options, float* gates) noexcept {
  TSR_CHECK(options.hidden > 0 && options.hc_mult > 0, "{} streams of {} columns", options.hc_mult, options.hidden);
  TSR_DISPATCH(StreamGateRow(x, kv, qk_weight, options, gates));
}

template void StreamGate(bf16*, const bf16*, const float*, const StreamGateOptions&, float*) noexcept;
template void StreamGate(float*, const float*, const float*, const StreamGateOptions&, float*) noexcept;

}  // namespace tessera
