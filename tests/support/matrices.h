// Random weight matrices of every format, exactly as large as their payload and scales, and aligned buffers for packed rows and scratch.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "core/quant_view.h"
#include "core/view.h"
#include "kernels/matmul.h"

namespace tessera::testing {

struct MatrixShape {
  Format format = Format::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;
  int32_t block_rows = 1;
  int32_t block_cols = 32;
  int scale_min = 118;  // scale bytes are uniform in [scale_min, scale_max]
  int scale_max = 136;
};

struct Matrix {
  std::vector<uint8_t> payload;  // starts with one byte that is not part of it: rows are at odd addresses
  std::vector<uint8_t> scales;
  QuantView view;
};

inline Matrix RandomMatrix(const MatrixShape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  Matrix matrix;
  QuantView& view = matrix.view;
  view.format = shape.format;
  view.rows = shape.rows;
  view.cols = shape.cols;
  view.row_bytes = FormatRowBytes(shape.format, shape.cols);
  matrix.payload.resize(1 + view.rows * view.row_bytes);
  for (uint8_t& byte : matrix.payload) byte = static_cast<uint8_t>(random());
  view.payload = matrix.payload.data() + 1;
  if (shape.format == Format::kBF16 || shape.format == Format::kF32) {
    // Magnitudes 2^-8 .. 2^8, every mantissa.
    const int bytes = shape.format == Format::kBF16 ? 2 : 4;
    for (int64_t i = 0; i < view.rows * view.cols; ++i) {
      const uint32_t bits = (static_cast<uint32_t>(random()) & 0x807fffffu) | static_cast<uint32_t>(119 + random() % 16) << 23;
      std::memcpy(matrix.payload.data() + 1 + i * bytes, reinterpret_cast<const uint8_t*>(&bits) + 4 - bytes, bytes);
    }
    return matrix;
  }
  if (shape.format == Format::kE4M3)
    for (uint8_t& byte : matrix.payload)
      if ((byte & 0x7f) == 0x7f) byte ^= 1;  // not the NaN codes
  view.block_rows = shape.block_rows;
  view.block_cols = shape.block_cols;
  view.scale_stride = (view.cols + view.block_cols - 1) / view.block_cols;
  matrix.scales.resize((view.rows + view.block_rows - 1) / view.block_rows * view.scale_stride);
  for (uint8_t& byte : matrix.scales)
    byte = static_cast<uint8_t>(shape.scale_min + random() % static_cast<uint64_t>(shape.scale_max - shape.scale_min + 1));
  view.scales = matrix.scales.data();
  return matrix;
}

// Standard normal values times `factor`, with zeros of both signs among them.
template <class A>
std::vector<A> RandomActivations(int64_t count, uint64_t seed, float factor = 1.0f) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<A> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = FromFloat<A>(i % 61 == 7 ? 0.0f : i % 53 == 5 ? -0.0f : factor * normal(random));
  return values;
}

// 64-byte aligned, exactly `bytes` long so that an overrun is seen by the address sanitizer.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(int64_t bytes) : data_(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))) {}
  void* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  std::unique_ptr<void, Free> data_;
};

// Packs and multiplies: x [num_rows, w.cols] (row indices may be null), result dense [num_rows, w.rows].
template <class A, class O>
std::vector<O> MultiplyRows(View<const A> x, const int32_t* row_indices, int64_t num_rows, const QuantView& w) {
  const AlignedBuffer packed(PackedBytes<A>(w.format, num_rows, w.cols));
  const AlignedBuffer scratch(MatMulScratchBytes(w.cols));
  PackActivations<A>(x, row_indices, num_rows, w.format, packed.get());
  std::vector<O> out(num_rows * w.rows);
  MatMulPacked<A, O>(packed.get(), num_rows, w, MakeView(out.data(), num_rows, w.rows), scratch.get());
  return out;
}

}  // namespace tessera::testing
