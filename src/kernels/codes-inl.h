// Codes of the small float formats in vector registers: kLanes integers of 32 bits beside vec.h's kLanes floats, loaded from and stored to
// bytes, and the exact conversions built on them. Everything here is integer arithmetic, one exact product, or one rounding to nearest
// even, so all tiers give equal bits.
#pragma once

#include <cstring>

#include "kernels/vec.h"

namespace tessera::TSR_TIER {

#if defined(TSR_TIER_AVX512)

struct IntVec {
  __m512i v;
};
inline IntVec SetInt(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline IntVec LoadBytes(const uint8_t* p, Full) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline IntVec LoadBytes(const uint8_t* p, Tail tail) { return {_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(TailMask(tail.count), p))}; }
inline void StoreBytes(IntVec x, uint8_t* p, Full) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v)); }
inline void StoreBytes(IntVec x, uint8_t* p, Tail tail) { _mm_mask_storeu_epi8(p, TailMask(tail.count), _mm512_cvtepi32_epi8(x.v)); }
inline IntVec Bits(Vec x) { return {_mm512_castps_si512(x.v)}; }
inline Vec FromBits(IntVec x) { return {_mm512_castsi512_ps(x.v)}; }
inline IntVec RoundToInt(Vec x) { return {_mm512_cvtps_epi32(x.v)}; }  // nearest even, |x| < 2^31
inline Vec ToVec(IntVec x) { return {_mm512_cvtepi32_ps(x.v)}; }
inline IntVec operator+(IntVec a, IntVec b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline IntVec operator-(IntVec a, IntVec b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline IntVec operator&(IntVec a, IntVec b) { return {_mm512_and_si512(a.v, b.v)}; }
inline IntVec operator|(IntVec a, IntVec b) { return {_mm512_or_si512(a.v, b.v)}; }
inline IntVec MaxInt(IntVec a, IntVec b) { return {_mm512_max_epi32(a.v, b.v)}; }
template <int kBits>
inline IntVec ShiftLeft(IntVec x) { return {_mm512_slli_epi32(x.v, kBits)}; }
template <int kBits>
inline IntVec ShiftRight(IntVec x) { return {_mm512_srli_epi32(x.v, kBits)}; }
inline IntVec SelectLess(IntVec a, IntVec b, IntVec yes, IntVec no) {
  return {_mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(a.v, b.v), no.v, yes.v)};
}
inline int32_t ReduceMaxInt(IntVec x) { return _mm512_reduce_max_epi32(x.v); }

#elif defined(TSR_TIER_AVX2)

struct IntVec {
  __m256i v;
};
inline IntVec SetInt(int32_t x) { return {_mm256_set1_epi32(x)}; }
inline IntVec LoadBytes(const uint8_t* p, Full) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))};
}
inline IntVec LoadBytes(const uint8_t* p, Tail tail) {
  uint8_t lanes[kLanes] = {};
  for (int i = 0; i < tail.count; ++i) lanes[i] = p[i];
  return LoadBytes(lanes, Full{});
}
inline void StoreBytes(IntVec x, uint8_t* p, Full) {
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(x.v), _mm256_extracti128_si256(x.v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
}
inline void StoreBytes(IntVec x, uint8_t* p, Tail tail) {
  uint8_t lanes[kLanes];
  StoreBytes(x, lanes, Full{});
  for (int i = 0; i < tail.count; ++i) p[i] = lanes[i];
}
inline IntVec Bits(Vec x) { return {_mm256_castps_si256(x.v)}; }
inline Vec FromBits(IntVec x) { return {_mm256_castsi256_ps(x.v)}; }
inline IntVec RoundToInt(Vec x) { return {_mm256_cvtps_epi32(x.v)}; }
inline Vec ToVec(IntVec x) { return {_mm256_cvtepi32_ps(x.v)}; }
inline IntVec operator+(IntVec a, IntVec b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline IntVec operator-(IntVec a, IntVec b) { return {_mm256_sub_epi32(a.v, b.v)}; }
inline IntVec operator&(IntVec a, IntVec b) { return {_mm256_and_si256(a.v, b.v)}; }
inline IntVec operator|(IntVec a, IntVec b) { return {_mm256_or_si256(a.v, b.v)}; }
inline IntVec MaxInt(IntVec a, IntVec b) { return {_mm256_max_epi32(a.v, b.v)}; }
template <int kBits>
inline IntVec ShiftLeft(IntVec x) { return {_mm256_slli_epi32(x.v, kBits)}; }
template <int kBits>
inline IntVec ShiftRight(IntVec x) { return {_mm256_srli_epi32(x.v, kBits)}; }
inline IntVec SelectLess(IntVec a, IntVec b, IntVec yes, IntVec no) {
  return {_mm256_blendv_epi8(no.v, yes.v, _mm256_cmpgt_epi32(b.v, a.v))};
}
inline int32_t ReduceMaxInt(IntVec x) {
  const __m128i q = _mm_max_epi32(_mm256_castsi256_si128(x.v), _mm256_extracti128_si256(x.v, 1));
  const __m128i d = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(d, _mm_shuffle_epi32(d, 0xb1)));
}

#else  // scalar

struct IntVec {
  uint32_t v;
};
inline IntVec SetInt(int32_t x) { return {static_cast<uint32_t>(x)}; }
inline IntVec LoadBytes(const uint8_t* p, Full) { return {*p}; }
inline IntVec LoadBytes(const uint8_t* p, Tail tail) { return {tail.count > 0 ? *p : uint32_t{0}}; }
inline void StoreBytes(IntVec x, uint8_t* p, Full) { *p = static_cast<uint8_t>(x.v); }
inline void StoreBytes(IntVec x, uint8_t* p, Tail tail) { if (tail.count > 0) *p = static_cast<uint8_t>(x.v); }
inline IntVec Bits(Vec x) { return {FloatToBits(x.v)}; }
inline Vec FromBits(IntVec x) { return {BitsToFloat(x.v)}; }
// Below 2^22 adding 1.5 * 2^23 leaves the nearest integer in the low bits, without the library call that nearbyint is on this tier.
inline IntVec RoundToInt(Vec x) { return {FloatToBits(x.v + 12582912.0f) - 0x4b400000u}; }
inline Vec ToVec(IntVec x) { return {static_cast<float>(static_cast<int32_t>(x.v))}; }
inline IntVec operator+(IntVec a, IntVec b) { return {a.v + b.v}; }
inline IntVec operator-(IntVec a, IntVec b) { return {a.v - b.v}; }
inline IntVec operator&(IntVec a, IntVec b) { return {a.v & b.v}; }
inline IntVec operator|(IntVec a, IntVec b) { return {a.v | b.v}; }
inline IntVec MaxInt(IntVec a, IntVec b) { return {static_cast<int32_t>(a.v) > static_cast<int32_t>(b.v) ? a.v : b.v}; }
template <int kBits>
inline IntVec ShiftLeft(IntVec x) { return {x.v << kBits}; }
template <int kBits>
inline IntVec ShiftRight(IntVec x) { return {x.v >> kBits}; }
inline IntVec SelectLess(IntVec a, IntVec b, IntVec yes, IntVec no) {
  return static_cast<int32_t>(a.v) < static_cast<int32_t>(b.v) ? yes : no;
}
inline int32_t ReduceMaxInt(IntVec x) { return static_cast<int32_t>(x.v); }

#endif

// Rounds the fp32 bits of a value >= 0 at mantissa bit kShift, to nearest even, and drops the bits below.
template <int kShift>
inline IntVec RoundBits(IntVec bits) {
  return ShiftRight<kShift>(bits + SetInt((1 << (kShift - 1)) - 1) + (ShiftRight<kShift>(bits) & SetInt(1)));
}

// e4m3 codes of finite x, saturating at 448, sign of zero kept (FloatToE4m3 of core/dtype.h).
inline IntVec EncodeE4m3(Vec x) {
  const IntVec sign = ShiftRight<24>(Bits(x)) & SetInt(0x80);
  const Vec a = Min(Abs(x), Set1(448.0f));
  const IntVec normal = RoundBits<20>(Bits(a)) - SetInt((127 - 7) << 3);  // 3 mantissa bits stay, the exponent's bias goes from 127 to 7
  const IntVec subnormal = RoundToInt(a * Set1(512.0f));                  // steps of 2^-9; 8 steps are the first normal code
  const IntVec smallest_normal = SetInt(0x3c800000);                      // the bits of 2^-6: order of floats >= 0 is order of their bits
  return SelectLess(Bits(a), smallest_normal, subnormal, normal) | sign;
}
// Values of e4m3 codes; 0x7f and 0xff give quiet NaN with the code's sign.
inline Vec DecodeE4m3(IntVec code) {
  const IntVec magnitude = code & SetInt(0x7f);
  const IntVec normal = ShiftLeft<20>(magnitude) + SetInt((127 - 7) << 23);
  const IntVec subnormal = Bits(ToVec(magnitude) * Set1(0x1p-9f));
  const IntVec finite = SelectLess(magnitude, SetInt(8), subnormal, normal);
  return FromBits(SelectLess(magnitude, SetInt(0x7f), finite, SetInt(0x7fc00000)) | ShiftLeft<24>(code & SetInt(0x80)));
}

// e2m1 codes of finite x, saturating at 6, sign of zero kept (FloatToE2m1).
inline IntVec EncodeE2m1(Vec x) {
  const IntVec sign = ShiftRight<28>(Bits(x)) & SetInt(8);
  const Vec a = Min(Abs(x), Set1(6.0f));
  const IntVec normal = RoundBits<22>(Bits(a)) - SetInt((127 - 1) << 1);
  const IntVec subnormal = RoundToInt(a + a);  // steps of 0.5 below 1
  return SelectLess(Bits(a), SetInt(0x3f800000), subnormal, normal) | sign;
}
inline Vec DecodeE2m1(IntVec code) {
  const IntVec magnitude = code & SetInt(7);
  const IntVec normal = ShiftLeft<22>(magnitude) + SetInt((127 - 1) << 23);
  const IntVec subnormal = Bits(ToVec(magnitude) * Set1(0.5f));
  return FromBits(SelectLess(magnitude, SetInt(2), subnormal, normal) | ShiftLeft<28>(code & SetInt(8)));
}

}  // namespace tessera::TSR_TIER
