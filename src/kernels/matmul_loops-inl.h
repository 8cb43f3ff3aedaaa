// The loops of the matrix product, once for all formats: packing, the direct form for few activation rows (each weight vector is decoded
// in registers and used by every row) and the tiled form (a tile of weight rows is decoded once and the activation rows stream past it).
// Both compute each output as: per part t = 0, t = fma(wi, xi, t) for i = 0..7, acc = fma(t, scale, acc); sum of acc's lanes.
#pragma once

#include <cstring>

#include "kernels/matmul_body.h"
#include "kernels/matmul_decode-inl.h"
#include "kernels/matmul_lanes-inl.h"
#include "kernels/matmul_scales-inl.h"

namespace tessera::TSR_TIER {

// A tile of 3 activation rows and 4 weight rows: 12 sums of the part, 12 sums of the whole, 4 weight vectors and an activation are 29 of 32
// registers. (Larger tiles with the whole sums in memory were slower: 6 x 4 gave 61 % of the fma peak where this gives 83 %.) With 16
// registers there is room for 8 sums of the part only.
#if defined(TSR_TIER_AVX512)
constexpr int kTileRows = 3;
constexpr bool kSumsInRegisters = true;
#else
constexpr int kTileRows = 2;
constexpr bool kSumsInRegisters = false;
#endif
constexpr int kTileCols = 4;  // what SumFour takes
// Columns of one pass: a decoded tile of 4 x 1,024 (18 KB) stays in the first-level cache.
constexpr int64_t kBlockParts = kBlockCols / kPartCols;

// The decoder keeps the core too busy to run ahead by itself: without asking ahead, weights streamed at 41 % of the read bandwidth, with it
// at 76 % (e2m1) and 80 % (e4m3) on Emerald Rapids. Far ahead into the second level, near into the first; distances of 5 to 16 KB and 0.5
// to 2 KB gave the same, one of the two alone up to 5 % less.
constexpr int64_t kFarBytes = 8192;
constexpr int64_t kNearBytes = 1024;
// Lines of a part that lies `ahead` bytes further; an address that is not mapped is no error.
template <int kBytes, int kLevel>
inline void PrefetchPart(const uint8_t* bytes, int64_t ahead) {
  const uintptr_t target = reinterpret_cast<uintptr_t>(bytes) + static_cast<uintptr_t>(ahead);
  for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(reinterpret_cast<const void*>(target + static_cast<uintptr_t>(i)), 0, kLevel);
}

// Floats of a packed part and row. (A part of bf16 pairs is half as long as one of fp32 values.)
template <class D>
constexpr int64_t kPackedPart = D::kVectors* kMatLanes;
template <class D>
constexpr int64_t PackedStride(int64_t cols) {
  return PackedRowFloats(PaddedCols(cols) / kPartCols * kPackedPart<D>);
}

// Activations below 2^-100 count as zero for quantised weights, so that no product or partial sum is subnormal: then the bf16 dot
// instruction of other CPUs, which flushes subnormals, gives the bits of the fma chain.
template <class D>
void PackRows(const PackCall& call) {
  int32_t columns[kPartCols];
  for (int i = 0; i < kPartVectors; ++i)
    for (int l = 0; l < kMatLanes; ++l) columns[i * kMatLanes + l] = D::Column(i, l);
  for (int64_t row_idx = 0; row_idx < call.num_rows; ++row_idx) {
    const int64_t source = call.row_indices != nullptr ? call.row_indices[row_idx] : row_idx;
    float* packed = call.packed + row_idx * PackedStride<D>(call.cols);
    for (int64_t first = 0; first < PaddedCols(call.cols); first += kPartCols, packed += kPackedPart<D>) {
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
      D::Pack(values, columns, packed);
    }
  }
}

inline void StoreOutput(const MatMulCall& call, int64_t m, int64_t n, float value) {
  if (call.out_rows != nullptr) m = call.out_rows[m];
  if (call.out_is_bf16) {
    static_cast<bf16*>(call.out)[m * call.out_stride + n] = ToBf16(value);
  } else {
    static_cast<float*>(call.out)[m * call.out_stride + n] = value;
  }
}

inline int64_t NumParts(const QuantView& w) { return (w.cols + kPartCols - 1) / kPartCols; }

// The parts [first_part, end_part) of a weight row in order: use(bytes). A last part that the row does not fill is copied into a zeroed
// buffer, so that nothing beyond the row is read.
template <class D, class F>
inline void ForEachPart(const QuantView& w, const uint8_t* row, int64_t first_part, int64_t end_part, F&& use) {
  const int64_t num_full = w.cols / kPartCols;
  const int64_t end_full = end_part < num_full ? end_part : num_full;
  for (int64_t part_idx = first_part; part_idx < end_full; ++part_idx) use(row + part_idx * D::kPartBytes);
  if (end_part <= num_full) return;
  alignas(64) uint8_t bytes[D::kPartBytes] = {};
  std::memcpy(bytes, row + num_full * D::kPartBytes, D::TailBytes(static_cast<int>(w.cols - num_full * kPartCols)));
  use(bytes);
}

template <class D, int M>
void DirectRows(const MatMulCall& call) {
  const QuantView& w = *call.weights;
  const int64_t num_parts = NumParts(w);
  const int64_t x_stride = PackedStride<D>(w.cols);
  ScaleWords scale_words(w, 0, num_parts * kPartCols, reinterpret_cast<uint16_t*>(call.scratch));
  for (int64_t n = 0; n < w.rows; ++n) {
    [[maybe_unused]] const uint16_t* scales = nullptr;
    if constexpr (D::kScaled) scales = scale_words.Row(n);
    const float* x = call.packed;
    MatVec acc[M] = {};
    ForEachPart<D>(w, w.Row(n), 0, num_parts, [&](const uint8_t* bytes) {
      PrefetchPart<D::kPartBytes, 2>(bytes, kFarBytes);
      PrefetchPart<D::kPartBytes, 3>(bytes, kNearBytes);
      MatVec t[M] = {};
      D::Decode(bytes, [&](int i, MatVec weights) {
        for (int m = 0; m < M; ++m) t[m] = D::Dot(weights, LoadLanes(x + m * x_stride + i * kMatLanes), t[m]);
      });
      if constexpr (D::kScaled) {
        const MatVec scale = ScaleLanes(scales);
        for (int m = 0; m < M; ++m) acc[m] = MulAdd(t[m], scale, acc[m]);
        scales += kPartScales;
      } else {
        for (int m = 0; m < M; ++m) acc[m] = acc[m] + t[m];
      }
      x += kPackedPart<D>;
    });
    for (int m = 0; m < M; ++m) StoreOutput(call, m, n, SumLanes(acc[m]));
  }
}

// Where one tile stands: weight rows [n, n + num_cols) and parts [first_part, end_part) of them.
struct Tile {
  int64_t n = 0;
  int64_t num_cols = 0;
  int64_t first_part = 0;
  int64_t end_part = 0;
};

// A decoded part of a tile: eight vectors (and the scales) of each of its kTileCols rows, vector-major.
template <class D>
constexpr int64_t kTilePartFloats = (D::kVectors + (D::kScaled ? 1 : 0)) * kTileCols* kMatLanes;

// Rows missing from the last tile are left as they are in `decoded`: their sums are computed and dropped.
template <class D>
void DecodeTile(const QuantView& w, const Tile& tile, uint16_t* words, float* decoded) {
  ScaleWords scale_words(w, tile.first_part * kPartCols, tile.end_part * kPartCols, words);
  for (int64_t row_idx = 0; row_idx < tile.num_cols; ++row_idx) {
    [[maybe_unused]] const uint16_t* scales = nullptr;
    if constexpr (D::kScaled) scales = scale_words.Row(tile.n + row_idx);
    float* target = decoded + row_idx * kMatLanes;
    ForEachPart<D>(w, w.Row(tile.n + row_idx), tile.first_part, tile.end_part, [&](const uint8_t* bytes) {
      PrefetchPart<D::kPartBytes, 2>(bytes, kTileCols * w.row_bytes);  // the next tile
      D::Decode(bytes, [target](int i, MatVec weights) { StoreLanes(weights, target + i * kTileCols * kMatLanes); });
      if constexpr (D::kScaled) {
        StoreLanes(ScaleLanes(scales), target + D::kVectors * kTileCols * kMatLanes);
        scales += kPartScales;
      }
      target += kTilePartFloats<D>;
    });
  }
}

// sums[m][n] continues over num_parts parts of a decoded tile and M activation rows.
template <class D, int M>
inline void TileParts(const float* x, int64_t x_stride, const float* w, int64_t num_parts, float* sums) {
  MatVec acc[M][kTileCols];
  if constexpr (kSumsInRegisters)
    for (int i = 0; i < M * kTileCols; ++i) acc[i / kTileCols][i % kTileCols] = LoadLanes(sums + i * kMatLanes);
  const float* rows[M] = {x};
#pragma GCC unroll 4
  for (int m = 1; m < M; ++m) {
    rows[m] = rows[m - 1] + x_stride;
    asm("" : "+r"(rows[m]));  // keeps gcc from deriving, and then spilling, an offset for every (m, i)
  }
  int64_t at = 0;
  for (int64_t part_idx = 0; part_idx < num_parts; ++part_idx, at += kPackedPart<D>, w += kTilePartFloats<D>) {
    MatVec t[M][kTileCols] = {};
#pragma GCC unroll 8
    for (int i = 0; i < D::kVectors; ++i) {
      MatVec weights[kTileCols];
#pragma GCC unroll 4
      for (int n = 0; n < kTileCols; ++n) weights[n] = InRegister(LoadLanes(w + (i * kTileCols + n) * kMatLanes));
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        const MatVec activation = InRegister(LoadLanes(rows[m] + at + i * kMatLanes));
#pragma GCC unroll 4
        for (int n = 0; n < kTileCols; ++n) t[m][n] = D::Dot(weights[n], activation, t[m][n]);
      }
    }
#pragma GCC unroll 4
    for (int n = 0; n < kTileCols; ++n) {
      [[maybe_unused]] MatVec scale;
      if constexpr (D::kScaled) scale = InRegister(LoadLanes(w + (D::kVectors * kTileCols + n) * kMatLanes));
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m) {
        float* sum = sums + (m * kTileCols + n) * kMatLanes;
        if constexpr (!kSumsInRegisters) acc[m][n] = LoadLanes(sum);
        if constexpr (D::kScaled) {
          acc[m][n] = MulAdd(t[m][n], scale, acc[m][n]);
        } else {
          acc[m][n] = acc[m][n] + t[m][n];
        }
        if constexpr (!kSumsInRegisters) StoreLanes(acc[m][n], sum);
      }
    }
  }
  if constexpr (kSumsInRegisters)
    for (int i = 0; i < M * kTileCols; ++i) StoreLanes(acc[i / kTileCols][i % kTileCols], sums + i * kMatLanes);
}

template <class D, int M>
void RunTile(const MatMulCall& call, int64_t first_m, const Tile& tile, const float* decoded, float* sums) {
  const QuantView& w = *call.weights;
  const int64_t x_stride = PackedStride<D>(w.cols);
  if (tile.first_part == 0)
    for (int i = 0; i < M * kTileCols; ++i) StoreLanes(MatVec{}, sums + i * kMatLanes);
  TileParts<D, M>(call.packed + first_m * x_stride + tile.first_part * kPackedPart<D>, x_stride, decoded, tile.end_part - tile.first_part,
                  sums);
  if (tile.end_part < NumParts(w)) return;
  for (int m = 0; m < M; ++m) {
    float values[kTileCols];
    SumFour(sums + m * kTileCols * kMatLanes, values);
    for (int64_t n = 0; n < tile.num_cols; ++n) StoreOutput(call, first_m + m, tile.n + n, values[n]);
  }
}

// Activation rows [first_m, end_m) against one decoded tile; `sums` holds what earlier parts left, kTileRows x kTileCols vectors at a time.
template <class D>
void RunTiles(const MatMulCall& call, int64_t first_m, int64_t end_m, const Tile& tile, const float* decoded, float* sums) {
  constexpr int64_t kTileFloats = kTileRows * kTileCols * kMatLanes;
  for (int64_t m = first_m; m < end_m; sums += kTileFloats) {
    const int64_t left = end_m - m;
    if (kTileRows == 3 && (left == 4 || left == 2)) {  // two rows twice: one row alone has too few sums to hide the latency of fma
      RunTile<D, 2>(call, m, tile, decoded, sums);
      m += 2;
    } else if (left >= kTileRows) {
      RunTile<D, kTileRows>(call, m, tile, decoded, sums);
      m += kTileRows;
    } else {
      RunTile<D, 1>(call, m, tile, decoded, sums);
      m += 1;
    }
  }
}

template <class D>
void TiledRows(const MatMulCall& call) {
  const QuantView& w = *call.weights;
  uint16_t* words = reinterpret_cast<uint16_t*>(call.scratch);
  float* decoded = reinterpret_cast<float*>(call.scratch + ScaleWordBytes(w.cols));
  float* sums = reinterpret_cast<float*>(call.scratch + ScaleWordBytes(w.cols) + kDecodedBytes);
  const int64_t num_parts = NumParts(w);
  for (int64_t m0 = 0; m0 < call.num_rows; m0 += kChunkRows) {
    const int64_t m_end = m0 + kChunkRows < call.num_rows ? m0 + kChunkRows : call.num_rows;
    // Few activation rows: one tile at a time, so that the weights are read nearly in order.
    const int64_t block_rows = m_end - m0 <= kFewRows ? kTileCols : kBlockRows;
    const int64_t tile_sums = (m_end - m0 + kTileRows - 1) / kTileRows * kTileRows * kTileCols * kMatLanes;
    for (int64_t n0 = 0; n0 < w.rows; n0 += block_rows) {
      const int64_t n_end = n0 + block_rows < w.rows ? n0 + block_rows : w.rows;
      for (int64_t part = 0; part < num_parts; part += kBlockParts) {
        const int64_t part_end = part + kBlockParts < num_parts ? part + kBlockParts : num_parts;
        for (int64_t n = n0; n < n_end; n += kTileCols) {
          const Tile tile = {n, n_end - n < kTileCols ? n_end - n : kTileCols, part, part_end};
          DecodeTile<D>(w, tile, words, decoded);
          RunTiles<D>(call, m0, m_end, tile, decoded, sums + (n - n0) / kTileCols * tile_sums);
        }
      }
    }
  }
}

template <class D>
void MatMulRows(const MatMulCall& call) {
  switch (call.num_rows) {
    case 0:
      return;
    case 1:
      return DirectRows<D, 1>(call);
    case 2:
      return DirectRows<D, 2>(call);
    case 3:
      return DirectRows<D, 3>(call);
    default:
      return TiledRows<D>(call);
  }
}

}  // namespace tessera::TSR_TIER
