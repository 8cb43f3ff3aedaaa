// Activation functions of the MoE layers (spec/model.md section 7).
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tessera {

// h = T(weight * (silu(min(g, limit)) * clamp(u, -limit, limit))), fp32 inside. The routing weight comes before w2; 1 for the shared
// expert. g and u already carry T's rounding. h may be g or u.
template <class T>
void SwiGlu(const T* g, const T* u, int64_t cols, float limit, float weight, T* h) noexcept;

// y = sqrt(softplus(x)), softplus(x) = ln(1 + e^x), x itself above 20. Within 4 ulp of the exact value, also for very negative x
// (e^x is then the answer's square; results below 2^-62.9 may flush to 0).
void SqrtSoftplus(const float* x, int64_t cols, float* y) noexcept;

}  // namespace tessera
