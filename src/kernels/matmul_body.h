// What the entry of the matrix product (matmul.cc) hands to the copies of its body, and the shape of the data both sides know: packed
// activations and scratch. Only matmul*.cc include this.
//
// Columns are worked on in parts of 8 * lanes columns (128, 64 or 32 by tier; a group of 128 is 1, 2 or 4 parts). A part is eight
// vectors; vector i, lane l stands for one column, the same for weights and activations, chosen so that the decoder of the format is
// cheap and that four neighbouring lanes belong to the same 32 columns, hence to one scale.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/quant_view.h"
#include "kernels/matmul.h"
#include "kernels/tier.h"

namespace tessera {

struct PackCall {
  const void* x = nullptr;
  int64_t stride = 0;  // elements
  bool x_is_bf16 = false;
  const int32_t* row_indices = nullptr;
  int64_t num_rows = 0;
  int64_t cols = 0;
  float* packed = nullptr;
};

struct MatMulCall {
  const float* packed = nullptr;
  int64_t num_rows = 0;
  const QuantView* weights = nullptr;
  void* out = nullptr;
  int64_t out_stride = 0;  // elements
  bool out_is_bf16 = false;
  const int32_t* out_rows = nullptr;  // where row m of the product goes; null: row m
  uint8_t* scratch = nullptr;
};

constexpr int64_t PaddedCols(int64_t cols) { return (cols + kMatMulGroupCols - 1) / kMatMulGroupCols * kMatMulGroupCols; }
// One cache line between rows keeps rows of a power-of-two length out of each other's cache sets.
constexpr int64_t PackedRowFloats(int64_t floats) { return floats + 16; }

// A pass is kBlockCols columns of a tile of 4 weight rows, decoded to fp32 with their lane-wise scales. Passes go over kBlockRows weight
// rows before the next columns, so that kChunkRows activation rows of kBlockCols columns (393 KB) stay in the second-level cache, and the
// sums of 64 x 96 outputs (393 KB) with them. Up to kFewRows activation rows, a pass is one tile.
constexpr int64_t kBlockCols = 1024;
constexpr int64_t kBlockRows = 64;
constexpr int64_t kChunkRows = 96;
constexpr int64_t kFewRows = 16;

constexpr int64_t ScaleWordBytes(int64_t cols) { return (PaddedCols(cols) / 32 * 2 + 63) / 64 * 64; }
constexpr int64_t kDecodedBytes = 4 * (kBlockCols / kMatMulGroupCols) * (8 + 1) * 64;
constexpr int64_t kSumBytes = kBlockRows * kChunkRows * 64;

TSR_DECLARE_TIERS(void PackBF16(const PackCall& call) noexcept; void PackF32(const PackCall& call) noexcept;
                  void PackE4m3(const PackCall& call) noexcept; void PackE2m1(const PackCall& call) noexcept;
                  void MatMulBF16(const MatMulCall& call) noexcept; void MatMulF32(const MatMulCall& call) noexcept;
                  void MatMulE4m3(const MatMulCall& call) noexcept; void MatMulE2m1(const MatMulCall& call) noexcept;)

// The same with the bf16 dot instruction, for bf16 activations.
namespace avx512 {
void PackDotBF16(const PackCall& call) noexcept;
void PackDotE4m3(const PackCall& call) noexcept;
void PackDotE2m1(const PackCall& call) noexcept;
void MatMulDotBF16(const MatMulCall& call) noexcept;
void MatMulDotE4m3(const MatMulCall& call) noexcept;
void MatMulDotE2m1(const MatMulCall& call) noexcept;
// Whether the instruction adds the upper halves' product, then the lower halves', each with one rounding: that is the fma chain's order.
bool Bf16DotIsFmaChain() noexcept;
}  // namespace avx512

}  // namespace tessera
