// The register of the matrix product, per tier: kMatLanes fp32 values. The two SIMD tiers use vec.h's register; the scalar tier takes four
// lanes (SSE2 is part of every x86-64), because one lane would make every sum one long chain.
#pragma once

#include "kernels/vec.h"

namespace tessera::TSR_TIER {

#if defined(TSR_TIER_AVX512) || defined(TSR_TIER_AVX2)

constexpr int kMatLanes = kLanes;
using MatVec = Vec;
inline MatVec LoadLanes(const float* p) { return Load(p); }
inline void StoreLanes(MatVec x, float* p) { Store(x, p); }
inline float SumLanes(MatVec x) { return ReduceAdd(x); }

#if defined(TSR_TIER_AVX512)
// Four sums by the same tree as SumLanes, one below the other: halves and quarters of two or four registers share an add.
inline void SumFour(const float* lanes, float* sums) {
  const MatVec x[4] = {LoadLanes(lanes), LoadLanes(lanes + kMatLanes), LoadLanes(lanes + 2 * kMatLanes), LoadLanes(lanes + 3 * kMatLanes)};
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(x[0].v, x[1].v, 0x44), _mm512_shuffle_f32x4(x[0].v, x[1].v, 0xee));
  const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(x[2].v, x[3].v, 0x44), _mm512_shuffle_f32x4(x[2].v, x[3].v, 0xee));
  const __m512 quarters = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  const __m512 pairs = _mm512_add_ps(quarters, _mm512_permute_ps(quarters, 0x4e));
  const __m512 all = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0xb1));
  const __m512i firsts = _mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12));
  _mm_storeu_ps(sums, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, all)));
}
#else
inline void SumFour(const float* lanes, float* sums) {
  const MatVec x[4] = {LoadLanes(lanes), LoadLanes(lanes + kMatLanes), LoadLanes(lanes + 2 * kMatLanes), LoadLanes(lanes + 3 * kMatLanes)};
  const __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(x[0].v, x[1].v, 0x20), _mm256_permute2f128_ps(x[0].v, x[1].v, 0x31));
  const __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(x[2].v, x[3].v, 0x20), _mm256_permute2f128_ps(x[2].v, x[3].v, 0x31));
  const __m256 pairs = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
  // pairs: [a01 c01 | b01 d01]
  const __m256 all = _mm256_add_ps(pairs, _mm256_permute_ps(pairs, 0xb1));
  const __m128 ac = _mm256_castps256_ps128(all), bd = _mm256_extractf128_ps(all, 1);
  const __m128 mixed = _mm_shuffle_ps(ac, bd, 0x88);  // a c b d
  _mm_storeu_ps(sums, _mm_permute_ps(mixed, 0xd8));
}
#endif

#else

constexpr int kMatLanes = 4;
struct MatVec {
  float v __attribute__((vector_size(16)));
};
inline MatVec LoadLanes(const float* p) {
  MatVec x;
  std::memcpy(&x.v, p, sizeof x.v);
  return x;
}
inline void StoreLanes(MatVec x, float* p) { std::memcpy(p, &x.v, sizeof x.v); }
inline MatVec operator+(MatVec a, MatVec b) { return {a.v + b.v}; }
inline MatVec operator*(MatVec a, MatVec b) { return {a.v * b.v}; }
inline MatVec MulAdd(MatVec a, MatVec b, MatVec c) { return {a.v * b.v + c.v}; }
inline float SumLanes(MatVec x) { return (x.v[0] + x.v[2]) + (x.v[1] + x.v[3]); }
inline void SumFour(const float* lanes, float* sums) {
  const MatVec x[4] = {LoadLanes(lanes), LoadLanes(lanes + kMatLanes), LoadLanes(lanes + 2 * kMatLanes), LoadLanes(lanes + 3 * kMatLanes)};
  for (int i = 0; i < 4; ++i) sums[i] = SumLanes(x[i]);
}

#endif

// x, as a value that has been loaded: without it gcc repeats the load in every instruction that can take it from memory, and a tile that
// uses each vector several times is then bound by the load ports.
inline MatVec InRegister(MatVec x) {
#if defined(TSR_TIER_AVX512)
  asm("" : "+v"(x.v));
#else
  asm("" : "+x"(x.v));
#endif
  return x;
}

constexpr int kPartVectors = 8;
constexpr int kPartCols = kPartVectors * kMatLanes;
constexpr int kPartScales = kPartCols / 32;

}  // namespace tessera::TSR_TIER
