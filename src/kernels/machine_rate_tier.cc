// Bodies of the machine's limits. Integer sums: random bytes are NaN and subnormal as floats, which some cores add slowly.
#include "kernels/machine_rate.h"
#include "kernels/vec.h"

namespace tessera::TSR_TIER {
namespace {

#if defined(TSR_TIER_AVX512)

using Words = __m512i;
inline Words ZeroWords() { return _mm512_setzero_si512(); }
inline Words Add(Words sum, const uint8_t* p) { return _mm512_add_epi64(sum, _mm512_load_si512(p)); }
inline uint64_t Total(Words sum) { return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum)); }

#elif defined(TSR_TIER_AVX2)

using Words = __m256i;
inline Words ZeroWords() { return _mm256_setzero_si256(); }
inline Words Add(Words sum, const uint8_t* p) { return _mm256_add_epi64(sum, _mm256_load_si256(reinterpret_cast<const __m256i*>(p))); }
inline uint64_t Total(Words sum) {
  alignas(32) uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), sum);
  return words[0] + words[1] + words[2] + words[3];
}

#else  // scalar: the 16-byte registers that every x86-64 has

using Words = __m128i;
inline Words ZeroWords() { return _mm_setzero_si128(); }
inline Words Add(Words sum, const uint8_t* p) { return _mm_add_epi64(sum, _mm_load_si128(reinterpret_cast<const __m128i*>(p))); }
inline uint64_t Total(Words sum) {
  alignas(16) uint64_t words[2];
  _mm_store_si128(reinterpret_cast<__m128i*>(words), sum);
  return words[0] + words[1];
}

#endif

// Eight sums: with fewer the core's window covers too few lines, which cost a third of the rate with 16-byte loads.
constexpr int kSums = 8;

template <int kBytes>
inline void AddBlock(const uint8_t* p, Words (&sums)[kSums]) {
  constexpr int kWordBytes = static_cast<int>(sizeof(Words));
  static_assert(kBytes % kWordBytes == 0);
  for (int i = 0; i < kBytes / kWordBytes; ++i) sums[i % kSums] = Add(sums[i % kSums], p + i * kWordBytes);
}

inline uint64_t TotalOf(const Words (&sums)[kSums]) {
  uint64_t total = 0;
  for (const Words& sum : sums) total += Total(sum);
  return total;
}

}  // namespace

uint64_t ReadStream(const uint8_t* data, int64_t bytes) noexcept {
  Words sums[kSums];
  for (Words& sum : sums) sum = ZeroWords();
  // Plain loads: a software prefetch 4 KiB ahead is within 1 % on two workers and costs up to a fifth on one.
  for (int64_t i = 0; i < bytes; i += kStreamBlockBytes) AddBlock<kStreamBlockBytes>(data + i, sums);
  return TotalOf(sums);
}

uint64_t ReadRows(const uint8_t* data, const uint32_t* rows, int64_t count) noexcept {
  Words sums[kSums];
  for (Words& sum : sums) sum = ZeroWords();
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* ahead = data + rows[i + kGatherAhead < count ? i + kGatherAhead : i] * kGatherRowBytes;
    for (int line = 0; line < kGatherRowBytes; line += 64) __builtin_prefetch(ahead + line);
    AddBlock<kGatherRowBytes>(data + rows[i] * kGatherRowBytes, sums);
  }
  return TotalOf(sums);
}

float RunFma(float a, float b, int64_t loops) noexcept {
  const Vec va = Set1(a), vb = Set1(b);
  Vec sums[kDotSums];
  for (Vec& sum : sums) sum = Zero();
  for (int64_t i = 0; i < loops; ++i)
    for (Vec& sum : sums) sum = MulAdd(va, vb, sum);
  float total = 0;
  for (const Vec& sum : sums) total += ReduceAdd(sum);
  return total;
}

int64_t FmaFlopsPerLoop() noexcept { return int64_t{2} * kDotSums * kLanes; }

#if defined(TSR_TIER_AVX512)

float RunBf16Dot(float a, float b, int64_t loops) noexcept {
  const auto pairs = [](float x) { return (__m512bh)_mm512_set1_epi32(static_cast<int>((FloatToBits(x) >> 16) * 0x00010001u)); };
  const __m512bh va = pairs(a), vb = pairs(b);
  __m512 sums[kDotSums];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < loops; ++i)
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, va, vb);
  float total = 0;
  for (const __m512& sum : sums) total += ReduceAdd({sum});
  return total;
}

#endif

}  // namespace tessera::TSR_TIER
