#include "kernels/gather_rows.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/check.h"
#include "kernels/convert.h"

namespace tessera {
namespace {

constexpr int64_t kScaleCols = 32;     // an Engram row has one scale per 32 columns
constexpr int64_t kAlignedCols = 256;  // mapped rows have no alignment: they are widened through a small aligned copy

}  // namespace

template <class T>
void GatherRow(const QuantView& table, int64_t row, int copies, int64_t copy_stride, T* y) noexcept {
  TSR_CHECK(table.format == Format::kBF16 && row >= 0 && row < table.rows, "row {} of a table of {} rows", row, table.rows);
  if (copies <= 0) return;
  const uint8_t* source = table.Row(row);
  if constexpr (std::is_same_v<T, bf16>) {
    std::memcpy(y, source, static_cast<size_t>(table.cols) * sizeof(bf16));
  } else {
    bf16 aligned[kAlignedCols];
    for (int64_t begin = 0; begin < table.cols; begin += kAlignedCols) {
      const int64_t count = std::min(kAlignedCols, table.cols - begin);
      std::memcpy(aligned, source + begin * 2, static_cast<size_t>(count) * sizeof(bf16));
      ConvertRow(aligned, count, y + begin);
    }
  }
  for (int c = 1; c < copies; ++c) std::memcpy(y + c * copy_stride, y, static_cast<size_t>(table.cols) * sizeof(T));
}

template <class T>
bool GatherQuantizedRow(const uint8_t* codes, const uint8_t* scales, int64_t cols, T* y) noexcept {
  const int64_t blocks = (cols + kScaleCols - 1) / kScaleCols;
  if (blocks > 0 && std::memchr(scales, 255, static_cast<size_t>(blocks)) != nullptr) {
    std::fill_n(y, cols, FromFloat<T>(0.0f));
    return false;
  }
  DequantizeQ8(codes, scales, cols, kScaleCols, y);
  return true;
}

template void GatherRow(const QuantView&, int64_t, int, int64_t, bf16*) noexcept;
template void GatherRow(const QuantView&, int64_t, int, int64_t, float*) noexcept;
template bool GatherQuantizedRow(const uint8_t*, const uint8_t*, int64_t, bf16*) noexcept;
template bool GatherQuantizedRow(const uint8_t*, const uint8_t*, int64_t, float*) noexcept;

}  // namespace tessera
