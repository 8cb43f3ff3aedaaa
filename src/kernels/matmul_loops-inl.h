// The loops of the matrix product, once for all formats: packing, the direct form for few activation rows (each weight vector is decoded
// in registers and used by every row) and the tiled form (a block of weight rows is decoded once, then register tiles run over it).
// Both compute each output as: per part t = w0 x0, then t = fma(wi, xi, t) for i = 1..7, acc = fma(t, scale, acc); sum of acc's lanes.
#pragma once

#include <cstring>

#include "kernels/matmul_body.h"
#include "kernels/matmul_decode-inl.h"
#include "kernels/matmul_lanes-inl.h"
#include "kernels/matmul_scales-inl.h"

namespace tessera::TSR_TIER {

#if defined(TSR_TIER_AVX512)
constexpr int kTileRows = 6;  // 6 x 4 sums of a part, 4 weight vectors and an activation fill 29 of 32 registers
#else
constexpr int kTileRows = 2;  // 2 x 4 sums, 4 weights and an activation: 13 of 16
#endif
constexpr int kTileCols = 4;  // what SumFour takes
constexpr int64_t kBlockParts = 512 / kPartCols;  // columns of a tile pass: 6 activation rows of 512 fp32 columns stay in the first-level cache
constexpr int64_t kDirectRowsMax = 3;

// Activations below 2^-100 count as zero for quantised weights, so that no product or partial sum is subnormal: then the bf16 dot
// instruction of other CPUs, which flushes subnormals, gives the bits of the fma chain.
template <class D>
void PackRows(const PackCall& call) {
  int32_t columns[kPartCols];
  for (int i = 0; i < kPartVectors; ++i)
    for (int l = 0; l < kMatLanes; ++l) columns[i * kMatLanes + l] = D::Column(i, l);
  for (int64_t row_idx = 0; row_idx < call.num_rows; ++row_idx) {
    const int64_t source = call.row_indices != nullptr ? call.row_indices[row_idx] : row_idx;
    float* packed = call.packed + row_idx * PackedRowFloats(call.cols);
    for (int64_t first = 0; first < PaddedCols(call.cols); first += kPartCols, packed += kPartCols) {
      const int64_t left = call.cols - first;
      const int count = static_cast<int>(left < 0 ? 0 : left < kPartCols ? left : kPartCols);
      float values[kPartCols];
      if (call.x_is_bf16) {
        const bf16* x = static_cast<const bf16*>(call.x) + source * call.stride + first;
        for (int c = 0; c < count; ++c) {
          const float value = ToFloat(x[c]);
          values[c] = D::kScaled && value < 0x1p-100f && value > -0x1p-100f ? 0.0f : value;
        }
      } else if (count > 0) {
        std::memcpy(values, static_cast<const float*>(call.x) + source * call.stride + first, sizeof(float) * count);
      }
      for (int c = count; c < kPartCols; ++c) values[c] = 0.0f;
      for (int c = 0; c < kPartCols; ++c) packed[c] = values[columns[c]] * D::kActivationFactor;
    }
  }
}

inline void StoreOutput(const MatMulCall& call, int64_t m, int64_t n, float value) {
  if (call.out_is_bf16) {
    static_cast<bf16*>(call.out)[m * call.out_stride + n] = ToBf16(value);
  } else {
    static_cast<float*>(call.out)[m * call.out_stride + n] = value;
  }
}

// The parts of a weight row in order; the last one, where the row ends inside it, is copied into a zeroed buffer so that nothing beyond
// the row is read. use(part_idx, bytes).
template <class D, class F>
inline void ForEachPart(const QuantView& w, const uint8_t* row, F&& use) {
  const int64_t num_full = w.cols / kPartCols;
  for (int64_t part_idx = 0; part_idx < num_full; ++part_idx) use(part_idx, row + part_idx * D::kPartBytes);
  const int tail = static_cast<int>(w.cols - num_full * kPartCols);
  if (tail == 0) return;
  alignas(64) uint8_t bytes[D::kPartBytes] = {};
  std::memcpy(bytes, row + num_full * D::kPartBytes, D::TailBytes(tail));
  use(num_full, bytes);
}

template <class D, int M>
void DirectRows(const MatMulCall& call, int64_t first_row) {
  const QuantView& w = *call.weights;
  const int64_t x_stride = PackedRowFloats(w.cols);
  const float* x_rows = call.packed + first_row * x_stride;
  ScaleWords scale_words(w, reinterpret_cast<uint16_t*>(call.scratch));
  for (int64_t n = 0; n < w.rows; ++n) {
    const uint16_t* scales = nullptr;
    if constexpr (D::kScaled) scales = scale_words.Row(n);
    MatVec acc[M] = {};
    ForEachPart<D>(w, w.Row(n), [&](int64_t part_idx, const uint8_t* bytes) {
      MatVec weights[kPartVectors];
      D::Decode(bytes, weights);
      const float* x = x_rows + part_idx * kPartCols;
      MatVec t[M];
      for (int m = 0; m < M; ++m) t[m] = weights[0] * LoadLanes(x + m * x_stride);
#pragma GCC unroll 8
      for (int i = 1; i < kPartVectors; ++i)
        for (int m = 0; m < M; ++m) t[m] = MulAdd(weights[i], LoadLanes(x + m * x_stride + i * kMatLanes), t[m]);
      if constexpr (D::kScaled) {
        const MatVec scale = ScaleLanes(scales + part_idx * kPartScales);
        for (int m = 0; m < M; ++m) acc[m] = MulAdd(t[m], scale, acc[m]);
      } else {
        for (int m = 0; m < M; ++m) acc[m] = acc[m] + t[m];
      }
    });
    for (int m = 0; m < M; ++m) StoreOutput(call, first_row + m, n, SumLanes(acc[m]));
  }
}

// A decoded tile is kTileCols weight rows: per part eight vectors (and the scales) of each of its rows, vector-major.
template <class D>
constexpr int64_t kTilePartVectors = (kPartVectors + (D::kScaled ? 1 : 0)) * kTileCols;

template <class D>
void DecodeBlock(const QuantView& w, int64_t first_row, int64_t num_rows, uint16_t* words, float* decoded) {
  const int64_t num_parts = (w.cols + kPartCols - 1) / kPartCols;
  const int64_t tile_floats = num_parts * kTilePartVectors<D> * kMatLanes;
  ScaleWords scale_words(w, words);
  for (int64_t row_idx = 0; row_idx < num_rows; ++row_idx) {
    float* target = decoded + row_idx / kTileCols * tile_floats + row_idx % kTileCols * kMatLanes;
    const uint16_t* scales = nullptr;
    if constexpr (D::kScaled) scales = scale_words.Row(first_row + row_idx);
    ForEachPart<D>(w, w.Row(first_row + row_idx), [&](int64_t part_idx, const uint8_t* bytes) {
      MatVec weights[kPartVectors];
      D::Decode(bytes, weights);
      float* part = target + part_idx * kTilePartVectors<D> * kMatLanes;
      for (int i = 0; i < kPartVectors; ++i) StoreLanes(weights[i], part + i * kTileCols * kMatLanes);
      if constexpr (D::kScaled)
        StoreLanes(ScaleLanes(scales + part_idx * kPartScales), part + kPartVectors * kTileCols * kMatLanes);
    });
  }
  // Rows missing from the last tile: their sums are computed and dropped, so any finite value will do.
  for (int64_t row_idx = num_rows; row_idx % kTileCols != 0; ++row_idx) {
    float* target = decoded + row_idx / kTileCols * tile_floats + row_idx % kTileCols * kMatLanes;
    for (int64_t i = 0; i < num_parts * kTilePartVectors<D> / kTileCols; ++i) StoreLanes(MatVec{}, target + i * kTileCols * kMatLanes);
  }
}

// acc[m][n] continues over num_parts parts of a decoded tile and M activation rows.
template <class D, int M>
inline void TileParts(const float* x, int64_t x_stride, const float* w, int64_t num_parts, MatVec* acc) {
  for (int64_t part_idx = 0; part_idx < num_parts; ++part_idx) {
    MatVec t[M][kTileCols];
#pragma GCC unroll 8
    for (int i = 0; i < kPartVectors; ++i) {
      MatVec weights[kTileCols];
#pragma GCC unroll 4
      for (int n = 0; n < kTileCols; ++n) weights[n] = LoadLanes(w + (i * kTileCols + n) * kMatLanes);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        const MatVec activation = LoadLanes(x + m * x_stride + i * kMatLanes);
#pragma GCC unroll 4
        for (int n = 0; n < kTileCols; ++n)
          t[m][n] = i == 0 ? weights[n] * activation : MulAdd(weights[n], activation, t[m][n]);
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < kTileCols; ++n) {
      if constexpr (D::kScaled) {
        const MatVec scale = LoadLanes(w + (kPartVectors * kTileCols + n) * kMatLanes);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) acc[m * kTileCols + n] = MulAdd(t[m][n], scale, acc[m * kTileCols + n]);
      } else {
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) acc[m * kTileCols + n] = acc[m * kTileCols + n] + t[m][n];
      }
    }
    x += kPartCols;
    w += kTilePartVectors<D> * kMatLanes;
  }
}

// Where one tile stands: output rows [m, m + M) and columns [n, n + num_cols), parts [first_part, end_part) of num_parts.
struct Tile {
  int64_t m = 0;
  int64_t n = 0;
  int64_t num_cols = 0;
  int64_t first_part = 0;
  int64_t end_part = 0;
  int64_t num_parts = 0;
};

template <class D, int M>
void RunTile(const MatMulCall& call, const Tile& tile, const float* decoded_tile, float* partial) {
  const int64_t x_stride = PackedRowFloats(call.weights->cols);
  MatVec acc[M * kTileCols] = {};
  if (tile.first_part > 0)
    for (int i = 0; i < M * kTileCols; ++i) acc[i] = LoadLanes(partial + i * kMatLanes);
  TileParts<D, M>(call.packed + tile.m * x_stride + tile.first_part * kPartCols, x_stride,
                  decoded_tile + tile.first_part * kTilePartVectors<D> * kMatLanes, tile.end_part - tile.first_part, acc);
  if (tile.end_part < tile.num_parts) {
    for (int i = 0; i < M * kTileCols; ++i) StoreLanes(acc[i], partial + i * kMatLanes);
    return;
  }
  for (int m = 0; m < M; ++m) {
    float sums[kTileCols];
    SumFour(acc + m * kTileCols, sums);
    for (int64_t n = 0; n < tile.num_cols; ++n) StoreOutput(call, tile.m + m, tile.n + n, sums[n]);
  }
}

template <class D, int M = kTileRows>
void RunTileOfRows(const MatMulCall& call, int64_t num_rows, const Tile& tile, const float* decoded_tile, float* partial) {
  if constexpr (M > 0) {
    if (num_rows == M) return RunTile<D, M>(call, tile, decoded_tile, partial);
    RunTileOfRows<D, M - 1>(call, num_rows, tile, decoded_tile, partial);
  }
}

template <class D>
void TiledRows(const MatMulCall& call) {
  const QuantView& w = *call.weights;
  uint16_t* words = reinterpret_cast<uint16_t*>(call.scratch);
  float* decoded = reinterpret_cast<float*>(call.scratch + ScaleWordBytes(w.cols));
  float* partials = reinterpret_cast<float*>(call.scratch + ScaleWordBytes(w.cols) + DecodedBytes(w.cols));
  const int64_t num_parts = (w.cols + kPartCols - 1) / kPartCols;
  const int64_t tile_floats = num_parts * kTilePartVectors<D> * kMatLanes;
  for (int64_t n0 = 0; n0 < w.rows; n0 += kBlockRows) {
    const int64_t block_rows = w.rows - n0 < kBlockRows ? w.rows - n0 : kBlockRows;
    DecodeBlock<D>(w, n0, block_rows, words, decoded);
    for (int64_t m0 = 0; m0 < call.num_rows; m0 += kChunkRows) {
      const int64_t m_end = m0 + kChunkRows < call.num_rows ? m0 + kChunkRows : call.num_rows;
      for (int64_t part = 0; part < num_parts; part += kBlockParts) {
        float* partial = partials;
        for (int64_t m = m0; m < m_end; m += kTileRows) {
          const int64_t tile_rows = m_end - m < kTileRows ? m_end - m : kTileRows;
          for (int64_t n = 0; n < block_rows; n += kTileCols, partial += kTileRows * kTileCols * kMatLanes) {
            const Tile tile = {m,    n0 + n, block_rows - n < kTileCols ? block_rows - n : kTileCols,
                               part, part + kBlockParts < num_parts ? part + kBlockParts : num_parts, num_parts};
            RunTileOfRows<D>(call, tile_rows, tile, decoded + n / kTileCols * tile_floats, partial);
          }
        }
      }
    }
  }
}

template <class D>
void MatMulRows(const MatMulCall& call) {
  switch (call.num_rows) {
    case 0: return;
    case 1: return DirectRows<D, 1>(call, 0);
    case 2: return DirectRows<D, 2>(call, 0);
    case 3: return DirectRows<D, 3>(call, 0);
    default: return TiledRows<D>(call);
  }
}

}  // namespace tessera::TSR_TIER
