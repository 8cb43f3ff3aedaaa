// Bodies of the quantisers. A row is worked off in chunks of whole blocks: largest magnitudes, then scales, then codes; four-bit codes are
// first written one a byte and then packed, which keeps one form for every register width.
#include <cstring>

#include "kernels/codes-inl.h"

namespace tessera::TSR_TIER {
namespace {

constexpr int64_t kChunkCols = 1024;    // kPackedBlockMax of convert.cc: the widest block is one chunk
constexpr int32_t kInfinityBits = 0x7f800000;
constexpr float kQuietNan = __builtin_nanf("");

int64_t ChunkCols(int64_t cols, int64_t block) {
  const int64_t whole = kChunkCols / block * block;
  return cols < whole ? cols : whole;
}

// Bits of max|x|. Compared as integers, so that a NaN is larger than everything and is not lost.
template <class T>
int32_t MagnitudeMaxBits(const T* x, int64_t cols) {
  IntVec most = SetInt(0);
  ForEachVec(cols, [&](int64_t i, auto part) { most = MaxInt(most, Bits(Abs(Load(x + i, part)))); });
  return ReduceMaxInt(most);
}

// A block's power-of-two scale: its E8M0 byte and the reciprocal 2^-k. The product with it equals the quotient by 2^k in every bit.
struct PowerScale {
  uint8_t byte;
  float reciprocal;
};
PowerScale MakePowerScale(int32_t magnitude_bits, float magnitude_min, float factor) {
  if (magnitude_bits >= kInfinityBits) return {255, 0.0f};
  const float found = BitsToFloat(static_cast<uint32_t>(magnitude_bits));
  const float magnitude = found > magnitude_min ? found : magnitude_min;
  const uint32_t byte = FloatToBits(Pow2Ceil(magnitude * factor)) >> 23;
  return {static_cast<uint8_t>(byte), BitsToFloat((254 - byte) << 23)};
}
PowerScale MakeQ8Scale(int32_t magnitude_bits) { return MakePowerScale(magnitude_bits, 1e-4f, 1.0f / 448.0f); }
PowerScale MakeQ4Scale(int32_t magnitude_bits) { return MakePowerScale(magnitude_bits, 6 * 0x1p-126f, 1.0f / 6.0f); }

template <class T>
void Fill(float value, int64_t cols, T* x) {
  const Vec v = Set1(value);
  ForEachVec(cols, [&](int64_t i, auto part) { Store(v, x + i, part); });
}

void PackNibbles(const uint8_t* nibbles, int64_t count, uint8_t* codes) {
  for (int64_t i = 0; i < count / 2; ++i) codes[i] = static_cast<uint8_t>(nibbles[2 * i] | (nibbles[2 * i + 1] << 4));
  if (count % 2 != 0) codes[count / 2] = nibbles[count - 1];
}

void UnpackNibbles(const uint8_t* codes, int64_t count, uint8_t* nibbles) {
  for (int64_t i = 0; i < count / 2; ++i) {
    nibbles[2 * i] = codes[i] & 15;
    nibbles[2 * i + 1] = codes[i] >> 4;
  }
  if (count % 2 != 0) nibbles[count - 1] = codes[count / 2] & 15;
}

// x = value of the four-bit codes times their block's scale. A NaN scale fills its block with the plain quiet NaN.
template <class T>
void DequantizeNibbles(const uint8_t* nibbles, const float* scales, int64_t cols, int64_t block, T* x) {
  for (int64_t begin = 0; begin < cols; begin += block, ++scales) {
    const int64_t count = cols - begin < block ? cols - begin : block;
    if (std::isnan(*scales)) {
      Fill(kQuietNan, count, x + begin);
      continue;
    }
    const Vec scale = Set1(*scales);
    ForEachVec(count, [&](int64_t i, auto part) { Store(DecodeE2m1(LoadBytes(nibbles + begin + i, part)) * scale, x + begin + i, part); });
  }
}

}  // namespace

template <class T>
void QuantizeQ8Row(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept {
  for (int64_t begin = 0; begin < cols; begin += block, ++scales) {
    const int64_t count = cols - begin < block ? cols - begin : block;
    const PowerScale scale = MakeQ8Scale(MagnitudeMaxBits(x + begin, count));
    *scales = scale.byte;
    if (scale.byte == 255) {
      std::memset(codes + begin, 0, static_cast<size_t>(count));
      continue;
    }
    const Vec reciprocal = Set1(scale.reciprocal);
    ForEachVec(count, [&](int64_t i, auto part) {
      StoreBytes(EncodeE4m3(Load(x + begin + i, part) * reciprocal), codes + begin + i, part);
    });
  }
}

template <class T>
void DequantizeQ8Row(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept {
  for (int64_t begin = 0; begin < cols; begin += block, ++scales) {
    const int64_t count = cols - begin < block ? cols - begin : block;
    if (*scales == 255) {
      Fill(kQuietNan, count, x + begin);
      continue;
    }
    const Vec scale = Set1(E8m0ToFloat(*scales));
    ForEachVec(count, [&](int64_t i, auto part) { Store(DecodeE4m3(LoadBytes(codes + begin + i, part)) * scale, x + begin + i, part); });
  }
}

template <class T>
void FakeQuantizeQ8Row(T* x, int64_t cols, int64_t block) noexcept {
  for (int64_t begin = 0; begin < cols; begin += block) {
    const int64_t count = cols - begin < block ? cols - begin : block;
    const PowerScale scale = MakeQ8Scale(MagnitudeMaxBits(x + begin, count));
    if (scale.byte == 255) {
      Fill(kQuietNan, count, x + begin);
      continue;
    }
    const Vec reciprocal = Set1(scale.reciprocal);
    const Vec value = Set1(E8m0ToFloat(scale.byte));
    ForEachVec(count, [&](int64_t i, auto part) {
      Store(DecodeE4m3(EncodeE4m3(Load(x + begin + i, part) * reciprocal)) * value, x + begin + i, part);
    });
  }
}

template <class T>
void QuantizeQ4Row(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept {
  uint8_t nibbles[kChunkCols];
  while (cols > 0) {
    const int64_t chunk = ChunkCols(cols, block);
    for (int64_t begin = 0; begin < chunk; begin += block, ++scales) {
      const int64_t count = chunk - begin < block ? chunk - begin : block;
      const PowerScale scale = MakeQ4Scale(MagnitudeMaxBits(x + begin, count));
      *scales = scale.byte;
      if (scale.byte == 255) {
        std::memset(nibbles + begin, 0, static_cast<size_t>(count));
        continue;
      }
      const Vec reciprocal = Set1(scale.reciprocal);
      ForEachVec(count, [&](int64_t i, auto part) {
        StoreBytes(EncodeE2m1(Load(x + begin + i, part) * reciprocal), nibbles + begin + i, part);
      });
    }
    PackNibbles(nibbles, chunk, codes);
    x += chunk;
    codes += chunk / 2;
    cols -= chunk;
  }
}

template <class T>
void DequantizeQ4Row(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept {
  uint8_t nibbles[kChunkCols];
  float values[kChunkCols / 2];
  while (cols > 0) {
    const int64_t chunk = ChunkCols(cols, block);
    const int64_t blocks = (chunk + block - 1) / block;
    UnpackNibbles(codes, chunk, nibbles);
    for (int64_t b = 0; b < blocks; ++b) values[b] = E8m0ToFloat(scales[b]);
    DequantizeNibbles(nibbles, values, chunk, block, x);
    x += chunk;
    codes += chunk / 2;
    scales += blocks;
    cols -= chunk;
  }
}

template <class T>
void QuantizeQ4eRow(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept {
  uint8_t nibbles[kChunkCols];
  float values[kChunkCols / 2];
  while (cols > 0) {
    const int64_t chunk = ChunkCols(cols, block);
    const int64_t blocks = (chunk + block - 1) / block;
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t count = chunk - b * block < block ? chunk - b * block : block;
      values[b] = BitsToFloat(static_cast<uint32_t>(MagnitudeMaxBits(x + b * block, count)));
    }
    ForEachVec(blocks, [&](int64_t b, auto part) {
      const Vec magnitude = Load(values + b, part);
      const IntVec code = EncodeE4m3(Max(magnitude, Set1(6 * 0x1p-9f)) / Set1(6.0f));
      const IntVec scale = SelectLess(Bits(magnitude), SetInt(kInfinityBits), code, SetInt(0x7f));
      StoreBytes(scale, scales + b, part);
      Store(DecodeE4m3(scale), values + b, part);
    });
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t begin = b * block;
      const int64_t count = chunk - begin < block ? chunk - begin : block;
      if (std::isnan(values[b])) {
        std::memset(nibbles + begin, 0, static_cast<size_t>(count));
        continue;
      }
      const Vec scale = Set1(values[b]);  // no power of two: a true quotient, as in the reference
      ForEachVec(count, [&](int64_t i, auto part) {
        StoreBytes(EncodeE2m1(Load(x + begin + i, part) / scale), nibbles + begin + i, part);
      });
    }
    PackNibbles(nibbles, chunk, codes);
    x += chunk;
    codes += chunk / 2;
    scales += blocks;
    cols -= chunk;
  }
}

template <class T>
void DequantizeQ4eRow(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept {
  uint8_t nibbles[kChunkCols];
  float values[kChunkCols / 2];
  while (cols > 0) {
    const int64_t chunk = ChunkCols(cols, block);
    const int64_t blocks = (chunk + block - 1) / block;
    UnpackNibbles(codes, chunk, nibbles);
    ForEachVec(blocks, [&](int64_t b, auto part) { Store(DecodeE4m3(LoadBytes(scales + b, part)), values + b, part); });
    DequantizeNibbles(nibbles, values, chunk, block, x);
    x += chunk;
    codes += chunk / 2;
    scales += blocks;
    cols -= chunk;
  }
}

void NarrowRow(const float* x, int64_t cols, bf16* y) noexcept {
  ForEachVec(cols, [&](int64_t i, auto part) { Store(Load(x + i, part), y + i, part); });
}
void WidenRow(const bf16* x, int64_t cols, float* y) noexcept {
  ForEachVec(cols, [&](int64_t i, auto part) { Store(Load(x + i, part), y + i, part); });
}

template void QuantizeQ8Row(const bf16*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ8Row(const uint8_t*, const uint8_t*, int64_t, int64_t, bf16*) noexcept;
template void QuantizeQ4Row(const bf16*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ4Row(const uint8_t*, const uint8_t*, int64_t, int64_t, bf16*) noexcept;
template void QuantizeQ4eRow(const bf16*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ4eRow(const uint8_t*, const uint8_t*, int64_t, int64_t, bf16*) noexcept;
template void FakeQuantizeQ8Row(bf16*, int64_t, int64_t) noexcept;
template void QuantizeQ8Row(const float*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ8Row(const uint8_t*, const uint8_t*, int64_t, int64_t, float*) noexcept;
template void QuantizeQ4Row(const float*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ4Row(const uint8_t*, const uint8_t*, int64_t, int64_t, float*) noexcept;
template void QuantizeQ4eRow(const float*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ4eRow(const uint8_t*, const uint8_t*, int64_t, int64_t, float*) noexcept;
template void FakeQuantizeQ8Row(float*, int64_t, int64_t) noexcept;

}  // namespace tessera::TSR_TIER
