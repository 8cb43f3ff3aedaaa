// A weight matrix [rows, cols] where its file is mapped: payload codes, E8M0 scales and the block one scale covers.
// value(r, c) = decode(payload(r, c)) * 2^(scales[r / block_rows][c / block_cols] - 127); without scales the payload is the value.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tessera {

// Element format of a matrix's payload. E2M1 packs two columns a byte, the even column in the low nibble.
enum class Format : uint8_t { kBF16, kF32, kE4M3, kE2M1 };

struct QuantView {
  const uint8_t* payload = nullptr;  // row-major, rows * row_bytes; no alignment beyond one byte is promised
  const uint8_t* scales = nullptr;   // E8M0 [ceil(rows / block_rows), scale_stride]; null for BF16 and F32
  Format format = Format::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_bytes = 0;
  int64_t scale_stride = 0;  // bytes from one row of scales to the next
  int32_t block_rows = 1;
  int32_t block_cols = 1;  // a multiple of 32 where there are scales
  int32_t row_offset = 0;  // this view's row 0 is row `row_offset` of its first scale block (views that start inside a block)

  const uint8_t* Row(int64_t row_idx) const { return payload + row_idx * row_bytes; }
  const uint8_t* ScaleRow(int64_t row_idx) const { return scales + (row_idx + row_offset) / block_rows * scale_stride; }
  // What reading all of it moves: payload and scales.
  int64_t ReadBytes() const {
    const int64_t scale_rows = scales == nullptr ? 0 : (row_offset + rows + block_rows - 1) / block_rows;
    return rows * row_bytes + scale_rows * ((cols + block_cols - 1) / block_cols);
  }
  // Rows [first, first + count) of this matrix.
  QuantView Rows(int64_t first, int64_t count) const {
    QuantView view = *this;
    view.payload = Row(first);
    if (scales != nullptr) {
      view.scales = ScaleRow(first);
      view.row_offset = static_cast<int32_t>((first + row_offset) % block_rows);
    }
    view.rows = count;
    return view;
  }
};

constexpr int64_t FormatRowBytes(Format format, int64_t cols) {
  switch (format) {
    case Format::kBF16: return cols * 2;
    case Format::kF32: return cols * 4;
    case Format::kE4M3: return cols;
    case Format::kE2M1: return (cols + 1) / 2;
  }
  return 0;
}

}  // namespace tessera
