#include "kernels/swiglu.h"

#include "kernels/tier.h"

namespace tessera {

TSR_DECLARE_TIERS(
    template <class T> void SwiGluRow(const T* g, const T* u, int64_t cols, float limit, float weight, T* h) noexcept;
    void SqrtSoftplusRow(const float* x, int64_t cols, float* y) noexcept;)

template <class T>
void SwiGlu(const T* g, const T* u, int64_t cols, float limit, float weight, T* h) noexcept {
  TSR_DISPATCH(SwiGluRow(g, u, cols, limit, weight, h));
}

void SqrtSoftplus(const float* x, int64_t cols, float* y) noexcept { TSR_DISPATCH(SqrtSoftplusRow(x, cols, y)); }

template void SwiGlu(const bf16*, const bf16*, int64_t, float, float, bf16*) noexcept;
template void SwiGlu(const float*, const float*, int64_t, float, float, float*) noexcept;

}  // namespace tessera
