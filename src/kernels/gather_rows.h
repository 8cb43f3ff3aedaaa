// Copies table rows named by ids.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/quant_view.h"

namespace tessera {

// y[c * copy_stride + i] = T(table(row, i)) for every copy c < copies; table BF16. Exact.
template <class T>
void GatherRow(const QuantView& table, int64_t row, int copies, int64_t copy_stride, T* y) noexcept;

// Engram: dequantises one E4M3 row with its scales (block 1 x 32, the last may be short): y[i] = T(code * scale). Returns false when a
// scale byte is 255 (an error of that request; y is then zero).
template <class T>
[[nodiscard]] bool GatherQuantizedRow(const uint8_t* codes, const uint8_t* scales, int64_t cols, T* y) noexcept;

}  // namespace tessera
