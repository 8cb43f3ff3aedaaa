// Quantisers and dequantisers of the caches and of activations (spec/model.md section 2), on rows of T = bf16 or float.
// A row is cut into blocks of `block` columns (the last may be short); codes and scales are what the caches store.
//   Q8:  e4m3 codes, one E8M0 byte a block: amax = max(max|x|, 1e-4), s = pow2ceil(amax * fp32(1/448)).
//   Q4:  e2m1 codes, two a byte (even column low), one E8M0 byte a block: amax = max(max|x|, 6 * 2^-126), s = pow2ceil(amax * fp32(1/6)).
//   Q4e: e2m1 codes, one e4m3 byte a block: amax = max(max|x|, 6 * 2^-9), s = e4m3(amax / 6), saturating at 448.
// All rounding is to nearest even; the sign of zero is kept. Equal bits on every tier (integers and exact scalings only, and one division).
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tessera {

template <class T>
void QuantizeQ8(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept;
template <class T>
void DequantizeQ8(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept;

template <class T>
void QuantizeQ4(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept;
template <class T>
void DequantizeQ4(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept;

template <class T>
void QuantizeQ4e(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept;
template <class T>
void DequantizeQ4e(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept;

// x <- dequantise(quantise(x)), rounded to T (exact for bf16).
template <class T>
void FakeQuantizeQ8(T* x, int64_t cols, int64_t block) noexcept;

// Element-wise conversion, one rounding.
void ConvertRow(const float* x, int64_t cols, bf16* y) noexcept;
void ConvertRow(const bf16* x, int64_t cols, float* y) noexcept;
void ConvertRow(const float* x, int64_t cols, float* y) noexcept;
void ConvertRow(const bf16* x, int64_t cols, bf16* y) noexcept;

}  // namespace tessera
