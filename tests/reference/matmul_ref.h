// The matrix product in double, one column after the other, and the error a fast form may have.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/quant_view.h"
#include "core/view.h"

namespace tessera::testing {

inline double WeightRef(const QuantView& w, int64_t row_idx, int64_t col_idx) {
  const uint8_t* row = w.Row(row_idx);
  const auto scale = [&] { return std::ldexp(1.0, w.ScaleRow(row_idx)[col_idx / w.block_cols] - 127); };
  switch (w.format) {
    case Format::kBF16:
      return ToFloat(bf16{static_cast<uint16_t>(row[2 * col_idx] | row[2 * col_idx + 1] << 8)});
    case Format::kF32: {
      float value;
      std::memcpy(&value, row + 4 * col_idx, 4);
      return value;
    }
    case Format::kE4M3:
      return E4m3ToFloat(row[col_idx]) * scale();
    case Format::kE2M1:
      return E2m1ToFloat(row[col_idx / 2] >> (col_idx % 2 * 4) & 15) * scale();
  }
  return 0;
}

struct MatMulRef {
  std::vector<double> values;      // [num_rows, w.rows]
  std::vector<double> magnitudes;  // sum_k |x w|
};

template <class A>
MatMulRef MatMulReference(View<const A> x, const QuantView& w) {
  MatMulRef ref;
  std::vector<double> row(w.cols);
  ref.values.resize(x.rows * w.rows);
  ref.magnitudes.resize(x.rows * w.rows);
  for (int64_t n = 0; n < w.rows; ++n) {
    for (int64_t k = 0; k < w.cols; ++k) row[k] = WeightRef(w, n, k);
    for (int64_t m = 0; m < x.rows; ++m) {
      for (int64_t k = 0; k < w.cols; ++k) {
        const double product = row[k] * ToFloat(x.Row(m)[k]);
        ref.values[m * w.rows + n] += product;
        ref.magnitudes[m * w.rows + n] += std::fabs(product);
      }
    }
  }
  return ref;
}

// A product passes at most 8 roundings inside a part, one per part (at most cols / 32 + 4 of them, the scalar tier's) and 4 in the tree;
// a tier without fma rounds twice each. With u = 2^-24 and n roundings the error is at most n u sum|x w| / (1 - n u) (Higham, 3.1);
// results near the bottom of fp32 add half an ulp of a subnormal, 2^-150, per rounding. Storing bf16 adds half of its ulp, 2^-8 |y|
// (2^-134 where y is subnormal).
inline double MatMulTolerance(int64_t cols, double magnitude, double value, bool out_is_bf16) {
  const double roundings = 2.0 * (8 + cols / 32.0 + 4 + 4);
  const double sums = roundings * 0x1p-24 / (1 - roundings * 0x1p-24) * magnitude + roundings * 0x1p-150;
  return out_is_bf16 ? sums + 0x1p-8 * (std::fabs(value) + sums) + 0x1p-134 : sums;
}

}  // namespace tessera::testing
