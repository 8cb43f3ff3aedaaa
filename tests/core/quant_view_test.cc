#include "core/quant_view.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

// A matrix whose scale byte at block (i, j) is 16 i + j and whose payload byte at (r, c) is r + c, so that every pointer tells its place.
struct Matrix {
  static constexpr int64_t kRows = 100, kCols = 64;
  static constexpr int32_t kBlockRows = 32, kBlockCols = 32;
  std::vector<uint8_t> payload = std::vector<uint8_t>(kRows * kCols);
  std::vector<uint8_t> scales = std::vector<uint8_t>(4 * 2);

  Matrix() {
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < kCols; ++c) payload[r * kCols + c] = static_cast<uint8_t>(r + c);
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 2; ++j) scales[i * 2 + j] = static_cast<uint8_t>(16 * i + j);
  }
  QuantView view() const {
    QuantView view;
    view.payload = payload.data();
    view.scales = scales.data();
    view.format = Format::kE4M3;
    view.rows = kRows;
    view.cols = kCols;
    view.row_bytes = kCols;
    view.scale_stride = 2;
    view.block_rows = kBlockRows;
    view.block_cols = kBlockCols;
    return view;
  }
};

TEST(QuantViewTest, RowsInsideAScaleBlockKeepTheirScales) {
  const Matrix matrix;
  const QuantView all = matrix.view();
  for (int64_t first = 0; first < Matrix::kRows; ++first) {
    const QuantView part = all.Rows(first, Matrix::kRows - first);
    ASSERT_EQ(part.rows, Matrix::kRows - first);
    for (int64_t row = 0; row < part.rows; ++row) {
      ASSERT_EQ(part.Row(row), all.Row(first + row));
      ASSERT_EQ(part.ScaleRow(row), all.ScaleRow(first + row)) << "row " << row << " of a view from row " << first;
    }
  }
}

TEST(QuantViewTest, RowsOfRowsComposes) {
  const Matrix matrix;
  const QuantView all = matrix.view();
  const QuantView part = all.Rows(17, 70).Rows(20, 40).Rows(7, 3);  // rows 44, 45, 46
  EXPECT_EQ(part.rows, 3);
  EXPECT_EQ(part.row_offset, 12);
  for (int64_t row = 0; row < 3; ++row) {
    EXPECT_EQ(part.Row(row), all.Row(44 + row));
    EXPECT_EQ(part.ScaleRow(row)[1], 17);
  }
}

TEST(QuantViewTest, WithoutScalesOnlyThePayloadMoves) {
  const Matrix matrix;
  QuantView view = matrix.view();
  view.scales = nullptr;
  view.format = Format::kBF16;
  view.cols = Matrix::kCols / 2;
  const QuantView part = view.Rows(5, 2);
  EXPECT_EQ(part.scales, nullptr);
  EXPECT_EQ(part.Row(1), matrix.payload.data() + 6 * Matrix::kCols);
}

TEST(QuantViewTest, RowBytesByFormat) {
  EXPECT_EQ(FormatRowBytes(Format::kBF16, 7), 14);
  EXPECT_EQ(FormatRowBytes(Format::kF32, 7), 28);
  EXPECT_EQ(FormatRowBytes(Format::kE4M3, 7), 7);
  EXPECT_EQ(FormatRowBytes(Format::kE2M1, 7), 4);
  EXPECT_EQ(FormatRowBytes(Format::kE2M1, 8), 4);
}

}  // namespace
}  // namespace tessera
