// The AVX-512 tier's second set of matrix products, with the bf16 dot instruction (four vectors of pairs a part instead of eight of fp32):
// twice the rate of fma on CPUs whose pipes do one such instruction a cycle, slower than fma on others. Both sets give the same bits.
#include "kernels/matmul_body.h"

#if defined(TSR_TIER_AVX512)

#include "kernels/matmul_loops-inl.h"

namespace tessera::avx512 {
namespace {

struct DotParts {
  static constexpr int kVectors = kPartVectors / 2;
  static inline MatVec Dot(MatVec w, MatVec x, MatVec sum) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)_mm512_castps_si512(w.v), (__m512bh)_mm512_castps_si512(x.v))};
  }
  // Vector 2v goes to the upper halves of vector v of pairs, vector 2v + 1 to the lower ones. The values are bf16 already.
  static inline void Pack(const float* values, const int32_t* columns, float* packed) {
    for (int v = 0; v < kVectors; ++v)
      for (int l = 0; l < kMatLanes; ++l) {
        const uint32_t upper = FloatToBits(values[columns[2 * v * kMatLanes + l]]);
        const uint32_t lower = FloatToBits(values[columns[(2 * v + 1) * kMatLanes + l]]);
        packed[v * kMatLanes + l] = BitsToFloat((upper & 0xffff0000u) | lower >> 16);
      }
  }
  static inline MatVec Pairs(__m512i words) { return {_mm512_castsi512_ps(words)}; }
};

struct DotBF16 : DecodeBF16 {
  static constexpr int kVectors = DotParts::kVectors;
  static constexpr auto Dot = DotParts::Dot;
  static constexpr auto Pack = DotParts::Pack;
  template <class F>
  static inline void Decode(const uint8_t* p, F&& use) {
    for (int v = 0; v < kVectors; ++v) use(v, DotParts::Pairs(_mm512_loadu_si512(p + 64 * v)));
  }
};

struct DotE2m1 : DecodeE2m1 {
  static constexpr int kVectors = DotParts::kVectors;
  static constexpr auto Dot = DotParts::Dot;
  static constexpr auto Pack = DotParts::Pack;
  template <class F>
  static inline void Decode(const uint8_t* p, F&& use) {
    // The look-up takes five bits of each word: the table is there twice, so the fifth does not matter.
    const __m512i values = _mm512_broadcast_i64x4(_mm256_setr_epi16(0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, -0x8000,
                                                                    -0x4100, -0x4080, -0x4040, -0x4000, -0x3fc0, -0x3f80, -0x3f40));
    const __m512i codes = _mm512_loadu_si512(p);
    use(0, DotParts::Pairs(_mm512_permutexvar_epi16(codes, values)));
    use(1, DotParts::Pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), values)));
    use(2, DotParts::Pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), values)));
    use(3, DotParts::Pairs(_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 12), values)));
  }
};

// Upper and lower byte of the bf16 value of each e4m3 magnitude (the NaN code as 480, like the other decoder).
struct E4m3Bytes {
  alignas(64) uint8_t upper[128];
  alignas(64) uint8_t lower[128];
};
constexpr E4m3Bytes MakeE4m3Bytes() {
  E4m3Bytes bytes = {};
  for (uint32_t code = 0; code < 128; ++code) {
    uint32_t word = (code << 4) + (120u << 7);  // normal: the fields moved, the bias changed
    if (code < 8) {                             // subnormal: code * 2^-9
      word = 0;
      for (uint32_t bit = 4, exponent = 120; code != 0 && word == 0; bit >>= 1, --exponent)
        if ((code & bit) != 0) word = (exponent << 7) | ((code * (4 / bit) * 2 & 7u) << 4);
    }
    bytes.upper[code] = static_cast<uint8_t>(word >> 8);
    bytes.lower[code] = static_cast<uint8_t>(word);
  }
  return bytes;
}
constexpr E4m3Bytes kE4m3Bytes = MakeE4m3Bytes();

// Byte b of dword l of a quarter q: the columns of vectors 4q + 1, 4q + 3 (lower halves) and 4q, 4q + 2 (upper halves), so that the even
// bytes are the pairs of vector 2q and the odd ones those of 2q + 1.
struct E4m3Arrangement {
  alignas(64) uint8_t column[2][64];
};
constexpr E4m3Arrangement MakeE4m3Arrangement() {
  constexpr int kVectorOfByte[4] = {1, 3, 0, 2};
  E4m3Arrangement arrangement = {};
  for (int q = 0; q < 2; ++q)
    for (int i = 0; i < 64; ++i) arrangement.column[q][i] = static_cast<uint8_t>(DecodeE4m3::Column(4 * q + kVectorOfByte[i % 4], i / 4));
  return arrangement;
}
constexpr E4m3Arrangement kE4m3Arrangement = MakeE4m3Arrangement();

struct DotE4m3 : DecodeE4m3 {
  static constexpr int kVectors = DotParts::kVectors;
  static constexpr auto Dot = DotParts::Dot;
  static constexpr auto Pack = DotParts::Pack;
  template <class F>
  static inline void Decode(const uint8_t* p, F&& use) {
    const __m512i low = _mm512_loadu_si512(p), high = _mm512_loadu_si512(p + 64);
    for (int q = 0; q < 2; ++q) {
      const __m512i codes = _mm512_permutex2var_epi8(low, _mm512_load_si512(kE4m3Arrangement.column[q]), high);
      const __m512i magnitude =
          _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Bytes.upper), codes, _mm512_load_si512(kE4m3Bytes.upper + 64));
      const __m512i lower = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Bytes.lower), codes, _mm512_load_si512(kE4m3Bytes.lower + 64));
      const __m512i upper = _mm512_or_si512(magnitude, _mm512_and_si512(codes, _mm512_set1_epi8(-128)));
      const __m512i low_byte = _mm512_set1_epi16(0x00ff);
      use(2 * q, DotParts::Pairs(_mm512_or_si512(_mm512_slli_epi16(upper, 8), _mm512_and_si512(lower, low_byte))));
      use(2 * q + 1, DotParts::Pairs(_mm512_or_si512(_mm512_andnot_si512(low_byte, upper), _mm512_srli_epi16(lower, 8))));
    }
  }
};

}  // namespace

void PackDotBF16(const PackCall& call) noexcept { PackRows<DotBF16>(call); }
void PackDotE4m3(const PackCall& call) noexcept { PackRows<DotE4m3>(call); }
void PackDotE2m1(const PackCall& call) noexcept { PackRows<DotE2m1>(call); }
void MatMulDotBF16(const MatMulCall& call) noexcept { MatMulRows<DotBF16>(call); }
void MatMulDotE4m3(const MatMulCall& call) noexcept { MatMulRows<DotE4m3>(call); }
void MatMulDotE2m1(const MatMulCall& call) noexcept { MatMulRows<DotE2m1>(call); }

bool Bf16DotIsFmaChain() noexcept {
  uint32_t state = 12345;
  const auto next = [&state] { return state = state * 1664525u + 1013904223u; };
  for (int round = 0; round < 256; ++round) {
    alignas(64) uint32_t w[16], x[16], sum[16];
    for (int l = 0; l < 16; ++l) {
      // Exponents within 2^-16 .. 2^15 of each other: sums round, cancel and swallow small terms, and nothing is subnormal.
      w[l] = (next() & 0x807f807fu) | (111u + next() / 134217728u) << 23 | (111u + next() / 134217728u) << 7;
      x[l] = (next() & 0x807f807fu) | (111u + next() / 134217728u) << 23 | (111u + next() / 134217728u) << 7;
      sum[l] = (next() & 0x807fffffu) | (111u + next() / 134217728u) << 23;
    }
    const auto load = [](const uint32_t* p) { return _mm512_load_si512(p); };
    const auto upper = [&](const uint32_t* p) { return _mm512_castsi512_ps(_mm512_and_si512(load(p), _mm512_set1_epi32(-65536))); };
    const auto lower = [&](const uint32_t* p) { return _mm512_castsi512_ps(_mm512_slli_epi32(load(p), 16)); };
    const __m512 start = _mm512_castsi512_ps(load(sum));
    const __m512 chain = _mm512_fmadd_ps(lower(w), lower(x), _mm512_fmadd_ps(upper(w), upper(x), start));
    const __m512 dot = _mm512_dpbf16_ps(start, (__m512bh)load(w), (__m512bh)load(x));
    if (_mm512_cmpneq_epi32_mask(_mm512_castps_si512(chain), _mm512_castps_si512(dot)) != 0) return false;
  }
  return true;
}

}  // namespace tessera::avx512

#endif
