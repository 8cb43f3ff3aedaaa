// Root-mean-square norms (spec/model.md sections 2 and 5.1). Sums run over fixed chunks of the row in a fixed order.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tessera {

// Sum of x[i]^2 in fp32.
template <class T>
float SumOfSquares(const T* x, int64_t cols) noexcept;

// y = T(weight * (x * rsqrt(mean(x^2) + eps))), fp32 inside, one rounding. y may be x.
template <class T>
void RmsNorm(const T* x, const bf16* weight, float eps, int64_t cols, T* y) noexcept;
// The same with an fp32 input row (compressor outputs that were not rounded before, sums over streams).
template <class T>
void RmsNormFromFloat(const float* x, const bf16* weight, float eps, int64_t cols, T* y) noexcept;

// V4's norm of one query head without a weight, in place. T = bf16 rounds at every step as the reference does: square, mean, + eps,
// rsqrt, product.
template <class T>
void HeadNorm(T* x, float eps, int64_t cols) noexcept;

}  // namespace tessera
