// Decoders of one part (kPartCols columns) of a weight row into eight fp32 vectors, exactly, and the column that vector i, lane l holds.
// Decode(bytes, use) calls use(i, vector) for i = 0, 1, ... as soon as each is there: on Intel cores with two 512-bit pipes a multiply-add
// right behind its look-up goes to the pipe the look-up does not need, where eight of each in a row wait for one another. At M = 1 on
// one core of Emerald Rapids: FP4 13.1 to 13.7 GB/s from the second-level cache and 11.2 to 12.1 from memory, FP8 15.4 to 15.9 and 12.9
// to 13.1. The columns come in pairs of vectors (2v, 2v + 1): they are the upper and the lower half of the words that a bf16 dot product
// instruction would take, in the order in which it adds them.
#pragma once

#include "core/quant_view.h"
#include "kernels/matmul_lanes-inl.h"

namespace tessera::TSR_TIER {

// Eight fp32 vectors a part, one fused multiply-add each.
template <int kActivationFactor = 1>
struct FmaParts {
  static constexpr int kVectors = kPartVectors;
  static inline MatVec Dot(MatVec w, MatVec x, MatVec sum) { return MulAdd(w, x, sum); }
  static inline void Pack(const float* values, const int32_t* columns, float* packed) {
    for (int i = 0; i < kPartCols; ++i) packed[i] = values[columns[i]] * static_cast<float>(kActivationFactor);
  }
};

struct DecodeF32 : FmaParts<> {
  static constexpr bool kScaled = false;
  static constexpr int kPartBytes = kPartCols * 4;
  static constexpr int TailBytes(int cols) { return cols * 4; }
  static constexpr int Column(int i, int l) { return i * kMatLanes + l; }
  template <class F>
  static inline void Decode(const uint8_t* p, F&& use) {
    for (int i = 0; i < kPartVectors; ++i) use(i, LoadLanes(reinterpret_cast<const float*>(p) + i * kMatLanes));
  }
};

struct DecodeBF16 : FmaParts<> {
  static constexpr bool kScaled = false;
  static constexpr int kPartBytes = kPartCols * 2;
  static constexpr int TailBytes(int cols) { return cols * 2; }
  static constexpr int Column(int i, int l) { return (i / 2) * 2 * kMatLanes + 2 * l + 1 - i % 2; }
  template <class F>
  static inline void Decode(const uint8_t* p, F&& use) {
    for (int v = 0; v < kPartVectors / 2; ++v) {
#if defined(TSR_TIER_AVX512)
      const __m512i pairs = _mm512_loadu_si512(p + 64 * v);
      use(2 * v, MatVec{_mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))});
      use(2 * v + 1, MatVec{_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16))});
#elif defined(TSR_TIER_AVX2)
      const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * v));
      use(2 * v, MatVec{_mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))});
      use(2 * v + 1, MatVec{_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16))});
#else
      MatVec upper, lower;
      for (int l = 0; l < kMatLanes; ++l) {
        uint32_t pair;
        std::memcpy(&pair, p + 4 * (v * kMatLanes + l), 4);
        upper.v[l] = BitsToFloat(pair & 0xffff0000u);
        lower.v[l] = BitsToFloat(pair << 16);
      }
      use(2 * v, upper);
      use(2 * v + 1, lower);
#endif
    }
  }
};

// An e4m3 code moved to the fields of a half-precision number is its value times 2^-8, subnormals included, and the conversion of halves
// is exact; the packed activations carry the 2^8. (The NaN codes 7f and ff, which no checkpoint holds, come out as +-480.)
struct DecodeE4m3 : FmaParts<256> {
  static constexpr bool kScaled = true;
  static constexpr int kPartBytes = kPartCols;
  static constexpr int TailBytes(int cols) { return cols; }
  // i = 4 q + 2 odd + high: qword 2 high + q of the 32 columns, byte 2 (l % 4) + odd of it.
  static constexpr int Column(int i, int l) { return l / 4 * 32 + i % 2 * 16 + i / 4 * 8 + l % 4 * 2 + i / 2 % 2; }
  template <class F>
  static inline void Decode(const uint8_t* p, F&& use) {
#if defined(TSR_TIER_AVX512)
    const __m512i low = _mm512_loadu_si512(p), high = _mm512_loadu_si512(p + 64);
    const __m512i first = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 4, 8, 12, 2, 6, 10, 14), high);
    const __m512i second = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(1, 5, 9, 13, 3, 7, 11, 15), high);
    DecodeHalf(first, 0, use);
    DecodeHalf(second, 4, use);
#elif defined(TSR_TIER_AVX2)
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32));
    DecodeHalf(_mm256_unpacklo_epi64(low, high), 0, use);
    DecodeHalf(_mm256_unpackhi_epi64(low, high), 4, use);
#else
    for (int i = 0; i < kPartVectors; ++i) {
      MatVec values;
      for (int l = 0; l < kMatLanes; ++l) values.v[l] = Value(p[Column(i, l)]);
      use(i, values);
    }
#endif
  }

 private:
#if defined(TSR_TIER_AVX512)
  // Words with the code in the upper byte: an arithmetic shift by one puts the exponent and mantissa in place and doubles the sign, whose
  // copy the mask clears.
  template <class F>
  static inline void DecodeHalf(__m512i codes, int first, F& use) {
    const __m512i fields = _mm512_set1_epi16(static_cast<int16_t>(0xbf80));
    const __m512i even = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(codes, 8), 1), fields);
    use(first, MatVec{_mm512_cvtph_ps(_mm512_castsi512_si256(even))});
    use(first + 1, MatVec{_mm512_cvtph_ps(_mm512_extracti64x4_epi64(even, 1))});
    const __m512i odd = _mm512_and_si512(_mm512_srai_epi16(codes, 1), fields);
    use(first + 2, MatVec{_mm512_cvtph_ps(_mm512_castsi512_si256(odd))});
    use(first + 3, MatVec{_mm512_cvtph_ps(_mm512_extracti64x4_epi64(odd, 1))});
  }
#elif defined(TSR_TIER_AVX2)
  template <class F>
  static inline void DecodeHalf(__m256i codes, int first, F& use) {
    const __m256i fields = _mm256_set1_epi16(static_cast<int16_t>(0xbf80));
    const __m256i even = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 1), fields);
    use(first, MatVec{_mm256_cvtph_ps(_mm256_castsi256_si128(even))});
    use(first + 1, MatVec{_mm256_cvtph_ps(_mm256_extracti128_si256(even, 1))});
    const __m256i odd = _mm256_and_si256(_mm256_srai_epi16(codes, 1), fields);
    use(first + 2, MatVec{_mm256_cvtph_ps(_mm256_castsi256_si128(odd))});
    use(first + 3, MatVec{_mm256_cvtph_ps(_mm256_extracti128_si256(odd, 1))});
  }
#else
  // Value times 2^-8: normal codes move into the fp32 fields with the bias changed; a subnormal is a count of 2^-17.
  static inline float Value(uint8_t code) {
    const uint32_t magnitude = code & 0x7fu;
    const uint32_t sign = (code & 0x80u) << 24;
    const float normal = BitsToFloat((magnitude << 20) + ((127u - 7u - 8u) << 23));
    const float subnormal = static_cast<float>(magnitude) * 0x1p-17f;
    return BitsToFloat(FloatToBits(magnitude < 8 ? subnormal : normal) | sign);
  }
#endif
};

struct DecodeE2m1 : FmaParts<> {
  static constexpr bool kScaled = true;
  static constexpr int kPartBytes = kPartCols / 2;
  static constexpr int TailBytes(int cols) { return (cols + 1) / 2; }
#if defined(TSR_TIER_AVX2)
  // i = 4 odd + 2 high + (0 upper, 1 lower word): the order that byte look-ups and in-lane interleaving give.
  static constexpr int Column(int i, int l) { return l / 4 * 32 + i / 2 % 2 * 16 + l % 4 * 4 + (i % 2 == 0 ? 2 : 0) + i / 4; }
#else
  // Lane l holds the eight codes of dword l, taken 4, 0, 5, 1, 6, 2, 7, 3.
  static constexpr int Column(int i, int l) { return 8 * l + Nibble(i); }
#endif
  template <class F>
  static inline void Decode(const uint8_t* p, F&& use) {
#if defined(TSR_TIER_AVX512)
    const __m512 values =
        _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    const __m512i codes = _mm512_loadu_si512(p);
    use(0, MatVec{_mm512_permutexvar_ps(_mm512_srli_epi32(codes, 16), values)});
    use(1, MatVec{_mm512_permutexvar_ps(codes, values)});
    use(2, MatVec{_mm512_permutexvar_ps(_mm512_srli_epi32(codes, 20), values)});
    use(3, MatVec{_mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), values)});
    use(4, MatVec{_mm512_permutexvar_ps(_mm512_srli_epi32(codes, 24), values)});
    use(5, MatVec{_mm512_permutexvar_ps(_mm512_srli_epi32(codes, 8), values)});
    use(6, MatVec{_mm512_permutexvar_ps(_mm512_srli_epi32(codes, 28), values)});
    use(7, MatVec{_mm512_permutexvar_ps(_mm512_srli_epi32(codes, 12), values)});
#elif defined(TSR_TIER_AVX2)
    const __m256i upper_bytes =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, -128, -65, -65, -65, -64, -64, -64, -64));
    const __m256i lower_bytes =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, -128, -64, 0, 64, -128, -64, 0, 0, -128, -64, 0, 64, -128, -64));
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i even = _mm256_and_si256(codes, nibble);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
    Widen(_mm256_shuffle_epi8(lower_bytes, even), _mm256_shuffle_epi8(upper_bytes, even), 0, use);
    Widen(_mm256_shuffle_epi8(lower_bytes, odd), _mm256_shuffle_epi8(upper_bytes, odd), 4, use);
#else
    constexpr float kValues[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    for (int i = 0; i < kPartVectors; ++i) {
      MatVec vector;
      for (int l = 0; l < kMatLanes; ++l) vector.v[l] = kValues[p[4 * l + Nibble(i) / 2] >> (Nibble(i) % 2 * 4) & 15];
      use(i, vector);
    }
#endif
  }

 private:
  static constexpr int Nibble(int i) { return i / 2 + (i % 2 == 0 ? 4 : 0); }
#if defined(TSR_TIER_AVX2)
  template <class F>
  static inline void Widen(__m256i lower, __m256i upper, int i, F& use) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    const __m256i first = _mm256_unpacklo_epi8(lower, upper), second = _mm256_unpackhi_epi8(lower, upper);
    use(i, MatVec{_mm256_castsi256_ps(_mm256_and_si256(first, mask))});
    use(i + 1, MatVec{_mm256_castsi256_ps(_mm256_slli_epi32(first, 16))});
    use(i + 2, MatVec{_mm256_castsi256_ps(_mm256_and_si256(second, mask))});
    use(i + 3, MatVec{_mm256_castsi256_ps(_mm256_slli_epi32(second, 16))});
  }
#endif
};

}  // namespace tessera::TSR_TIER
