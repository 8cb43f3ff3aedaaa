// The vector vocabulary that kernel bodies are written in: one fp32 register of kLanes values and the few operations bodies need, in the
// namespace of the tier being compiled (TSR_TIER, set by the build). Loads and stores of `count` < kLanes values never touch memory beyond
// them and read zeros, so a tail runs the same instructions as a full register and gives the same bits. A body is a lambda over
// (index, part) that ForEachVec calls with Full registers and at most one Tail.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>

#include "core/dtype.h"

#ifndef TSR_TIER
#error "kernel bodies are compiled per tier: TSR_TIER names the namespace"
#endif

namespace tessera::TSR_TIER {

#if defined(TSR_TIER_AVX512)

constexpr int kLanes = 16;
struct Vec {
  __m512 v;
};
inline __mmask16 TailMask(int count) { return static_cast<__mmask16>((1u << count) - 1u); }
inline Vec Zero() { return {_mm512_setzero_ps()}; }
inline Vec Set1(float x) { return {_mm512_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Vec Load(const float* p, int count) { return {_mm512_maskz_loadu_ps(TailMask(count), p)}; }
inline Vec WidenBf16(__m256i bits) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))}; }
inline Vec Load(const bf16* p) { return WidenBf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline Vec Load(const bf16* p, int count) { return WidenBf16(_mm256_maskz_loadu_epi16(TailMask(count), p)); }
inline void Store(Vec x, float* p) { _mm512_storeu_ps(p, x.v); }
inline void Store(Vec x, float* p, int count) { _mm512_mask_storeu_ps(p, TailMask(count), x.v); }
// Nearest even on the integer bits: unlike vcvtneps2bf16 it keeps subnormals.
inline __m256i NarrowBf16(Vec x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
}
inline Vec RoundToBf16(Vec x) { return WidenBf16(NarrowBf16(x)); }  // the nearest bf16, kept in fp32 lanes
inline void Store(Vec x, bf16* p) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), NarrowBf16(x)); }
inline void Store(Vec x, bf16* p, int count) { _mm256_mask_storeu_epi16(p, TailMask(count), NarrowBf16(x)); }
inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec MulAdd(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }  // a * b + c, one rounding where the tier has fma
inline Vec Min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }                   // b where either is NaN
inline Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec Sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
inline Vec Abs(Vec a) { return {_mm512_abs_ps(a.v)}; }
inline Vec RoundNearest(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Vec SelectLess(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
// x * 2^n for integral n in [-126, 127].
inline Vec ScaleByPowerOfTwo(Vec x, Vec n) {
  const __m512i exponent = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23);
  return {_mm512_mul_ps(x.v, _mm512_castsi512_ps(exponent))};
}
struct VecPair {
  Vec first, second;
};
// (p[0], p[2], ...) and (p[1], p[3], ...) of the 2 * kLanes values that a and b hold in order, and back.
inline VecPair Deinterleave(Vec a, Vec b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {{_mm512_permutex2var_ps(a.v, even, b.v)}, {_mm512_permutex2var_ps(a.v, odd, b.v)}};
}
inline VecPair Interleave(Vec even, Vec odd) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return {{_mm512_permutex2var_ps(even.v, low, odd.v)}, {_mm512_permutex2var_ps(even.v, high, odd.v)}};
}
// Always the same tree: halves, then quarters, ...
inline float ReduceAdd(Vec a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
inline float ReduceMax(Vec a) { return _mm512_reduce_max_ps(a.v); }
// Bit i is set where lane i of a is >= lane i of b (never where either is NaN).
inline uint32_t MaskGreaterEqual(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ); }
// 2 * kLanes consecutive values as two registers in the cheapest order to widen (bf16: even columns and odd ones); StorePair undoes it.
inline void LoadPair(const float* p, Vec* a, Vec* b) { *a = Load(p), *b = Load(p + kLanes); }
inline void LoadPair(const bf16* p, Vec* a, Vec* b) {
  const __m512i bits = _mm512_loadu_si512(p);
  a->v = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
  b->v = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline void StorePair(Vec a, Vec b, float* p) { Store(a, p), Store(b, p + kLanes); }
inline void StorePair(Vec a, Vec b, bf16* p) {
  const __m512i low = _mm512_cvtepu16_epi32(NarrowBf16(a)), high = _mm512_cvtepu16_epi32(NarrowBf16(b));
  _mm512_storeu_si512(p, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

#elif defined(TSR_TIER_AVX2)

constexpr int kLanes = 8;
struct Vec {
  __m256 v;
};
inline __m256i TailMask(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vec Zero() { return {_mm256_setzero_ps()}; }
inline Vec Set1(float x) { return {_mm256_set1_ps(x)}; }
inline Vec Load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline Vec Load(const float* p, int count) { return {_mm256_maskload_ps(p, TailMask(count))}; }
inline Vec WidenBf16(__m128i bits) { return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))}; }
inline Vec Load(const bf16* p) { return WidenBf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline Vec Load(const bf16* p, int count) {
  bf16 lanes[kLanes] = {};
  for (int i = 0; i < count; ++i) lanes[i] = p[i];
  return Load(lanes);
}
inline void Store(Vec x, float* p) { _mm256_storeu_ps(p, x.v); }
inline void Store(Vec x, float* p, int count) { _mm256_maskstore_ps(p, TailMask(count), x.v); }
inline __m128i NarrowBf16(Vec x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i lsb = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
  const __m256i words = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  const __m256i packed = _mm256_packus_epi32(words, words);  // in-lane: the two useful halves sit in quarters 0 and 2
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}
inline Vec RoundToBf16(Vec x) { return WidenBf16(NarrowBf16(x)); }
inline void Store(Vec x, bf16* p) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), NarrowBf16(x)); }
inline void Store(Vec x, bf16* p, int count) {
  bf16 lanes[kLanes];
  Store(x, lanes);
  for (int i = 0; i < count; ++i) p[i] = lanes[i];
}
inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vec MulAdd(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec Min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
inline Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Vec Sqrt(Vec a) { return {_mm256_sqrt_ps(a.v)}; }
inline Vec Abs(Vec a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
inline Vec RoundNearest(Vec a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
inline Vec SelectLess(Vec a, Vec b, Vec yes, Vec no) { return {_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))}; }
inline Vec ScaleByPowerOfTwo(Vec x, Vec n) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23);
  return {_mm256_mul_ps(x.v, _mm256_castsi256_ps(exponent))};
}
struct VecPair {
  Vec first, second;
};
inline VecPair Deinterleave(Vec a, Vec b) {
  const __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(a.v, b.v, 0x88));  // in-lane: a's and b's pairs alternate by quarter
  const __m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(a.v, b.v, 0xdd));
  return {{_mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8))}, {_mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8))}};
}
inline VecPair Interleave(Vec even, Vec odd) {
  const __m256 low = _mm256_unpacklo_ps(even.v, odd.v);
  const __m256 high = _mm256_unpackhi_ps(even.v, odd.v);
  return {{_mm256_permute2f128_ps(low, high, 0x20)}, {_mm256_permute2f128_ps(low, high, 0x31)}};
}
inline float ReduceAdd(Vec a) {
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
inline float ReduceMax(Vec a) {
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
inline uint32_t MaskGreaterEqual(Vec a, Vec b) { return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ))); }
inline void LoadPair(const float* p, Vec* a, Vec* b) { *a = Load(p), *b = Load(p + kLanes); }
inline void LoadPair(const bf16* p, Vec* a, Vec* b) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  a->v = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
  b->v = _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline void StorePair(Vec a, Vec b, float* p) { Store(a, p), Store(b, p + kLanes); }
inline void StorePair(Vec a, Vec b, bf16* p) {
  const __m256i low = _mm256_cvtepu16_epi32(NarrowBf16(a)), high = _mm256_cvtepu16_epi32(NarrowBf16(b));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_or_si256(low, _mm256_slli_epi32(high, 16)));
}

#else  // scalar

constexpr int kLanes = 1;
struct Vec {
  float v;
};
inline Vec Zero() { return {0.0f}; }
inline Vec Set1(float x) { return {x}; }
inline Vec Load(const float* p) { return {*p}; }
inline Vec Load(const float* p, int count) { return {count > 0 ? *p : 0.0f}; }
inline Vec Load(const bf16* p) { return {ToFloat(*p)}; }
inline Vec Load(const bf16* p, int count) { return {count > 0 ? ToFloat(*p) : 0.0f}; }
inline Vec RoundToBf16(Vec x) { return {ToFloat(ToBf16(x.v))}; }
inline void Store(Vec x, float* p) { *p = x.v; }
inline void Store(Vec x, float* p, int count) { if (count > 0) *p = x.v; }
inline void Store(Vec x, bf16* p) { *p = ToBf16(x.v); }
inline void Store(Vec x, bf16* p, int count) { if (count > 0) *p = ToBf16(x.v); }
inline Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
inline Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
inline Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
inline Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
inline Vec MulAdd(Vec a, Vec b, Vec c) { return {a.v * b.v + c.v}; }
inline Vec Min(Vec a, Vec b) { return {a.v < b.v ? a.v : b.v}; }
inline Vec Max(Vec a, Vec b) { return {a.v > b.v ? a.v : b.v}; }
inline Vec Sqrt(Vec a) { return {std::sqrt(a.v)}; }
inline Vec Abs(Vec a) { return {std::fabs(a.v)}; }
inline Vec RoundNearest(Vec a) { return {std::nearbyint(a.v)}; }
inline Vec SelectLess(Vec a, Vec b, Vec yes, Vec no) { return a.v < b.v ? yes : no; }
inline Vec ScaleByPowerOfTwo(Vec x, Vec n) { return {x.v * BitsToFloat(static_cast<uint32_t>(static_cast<int>(n.v) + 127) << 23)}; }
struct VecPair {
  Vec first, second;
};
inline VecPair Deinterleave(Vec a, Vec b) { return {a, b}; }
inline VecPair Interleave(Vec even, Vec odd) { return {even, odd}; }
inline float ReduceAdd(Vec a) { return a.v; }
inline float ReduceMax(Vec a) { return a.v; }
inline uint32_t MaskGreaterEqual(Vec a, Vec b) { return a.v >= b.v ? 1 : 0; }
template <class T>
inline void LoadPair(const T* p, Vec* a, Vec* b) { *a = Load(p), *b = Load(p + 1); }
template <class T>
inline void StorePair(Vec a, Vec b, T* p) { Store(a, p), Store(b, p + 1); }

#endif

// What a body's call covers: a whole register, or the first `count` lanes of one.
struct Full {
  static constexpr int count = kLanes;
};
struct Tail {
  int count;
};
template <class T>
inline Vec Load(const T* p, Full) { return Load(p); }
template <class T>
inline Vec Load(const T* p, Tail tail) { return Load(p, tail.count); }
template <class T>
inline void Store(Vec x, T* p, Full) { Store(x, p); }
template <class T>
inline void Store(Vec x, T* p, Tail tail) { Store(x, p, tail.count); }
// body(i, part) for i = 0, kLanes, ... < n; the last part is a Tail when n is no multiple of kLanes.
template <class Body>
inline void ForEachVec(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Full{});
  if (i < n) body(i, Tail{static_cast<int>(n - i)});
}
// The even and odd values of part.count pairs at p, and back.
template <class T>
inline VecPair LoadEvenOdd(const T* p, Full) { return Deinterleave(Load(p), Load(p + kLanes)); }
template <class T>
inline VecPair LoadEvenOdd(const T* p, Tail tail) {
  const int values = 2 * tail.count;
  const int beyond = values > kLanes ? values - kLanes : 0;
  return Deinterleave(Load(p, values - beyond), beyond > 0 ? Load(p + kLanes, beyond) : Zero());
}
template <class T>
inline void StoreEvenOdd(VecPair pairs, T* p, Full) {
  const VecPair x = Interleave(pairs.first, pairs.second);
  Store(x.first, p);
  Store(x.second, p + kLanes);
}
template <class T>
inline void StoreEvenOdd(VecPair pairs, T* p, Tail tail) {
  const VecPair x = Interleave(pairs.first, pairs.second);
  const int values = 2 * tail.count;
  const int beyond = values > kLanes ? values - kLanes : 0;
  Store(x.first, p, values - beyond);
  if (beyond > 0) Store(x.second, p + kLanes, beyond);
}

// e^x, relative error below 2 ulp; 0 below -87.3 (where e^x leaves the normal fp32 range), +inf above 88.7.
// x = n ln 2 + r with |r| <= ln 2 / 2 and the Taylor terms of e^r to r^7 / 5040, whose remainder is below 2^-27 there.
inline Vec Exp(Vec x) {
  const Vec n = RoundNearest(x * Set1(1.44269504088896341f));
  Vec r = MulAdd(n, Set1(-0.693359375f), x);        // ln 2 in two parts: the first has 9 significant bits, so the product is exact
  r = MulAdd(n, Set1(2.12194440054690583e-4f), r);
  Vec p = Set1(1.0f / 5040);
  p = MulAdd(p, r, Set1(1.0f / 720));
  p = MulAdd(p, r, Set1(1.0f / 120));
  p = MulAdd(p, r, Set1(1.0f / 24));
  p = MulAdd(p, r, Set1(1.0f / 6));
  p = MulAdd(p, r, Set1(0.5f));
  p = MulAdd(p, r * r, r + Set1(1.0f));
  const Vec half = RoundNearest(n * Set1(0.5f));    // 2^n in two factors, so that n = 128 and n = -126 stay in range
  const Vec clamped_half = Max(Min(half, Set1(127.0f)), Set1(-126.0f));
  const Vec rest = Max(Min(n - half, Set1(127.0f)), Set1(-126.0f));
  const Vec y = ScaleByPowerOfTwo(ScaleByPowerOfTwo(p, clamped_half), rest);
  const Vec low = SelectLess(x, Set1(-87.3f), Zero(), y);
  return SelectLess(Set1(88.7228f), x, Set1(INFINITY), low);
}
inline Vec Sigmoid(Vec x) { return Set1(1.0f) / (Set1(1.0f) + Exp(Zero() - x)); }

}  // namespace tessera::TSR_TIER
