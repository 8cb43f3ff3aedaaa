// Walsh-Hadamard transform in Sylvester order, scaled by n^-1/2 (V4's index queries and keys).
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tessera {

// In place; n is a power of two <= 1024. fp32 inside, one rounding to T.
template <class T>
void Hadamard(T* x, int64_t n) noexcept;

}  // namespace tessera
