// E8M0 scales of one weight row, spread to one 16-bit word (the upper half of the fp32 value) per 32 columns, whatever the block shape;
// and the lane-wise scale vector of a part made from those words. A row that shares its scales with the one before costs nothing.
#pragma once

#include "core/quant_view.h"
#include "kernels/matmul_body.h"
#include "kernels/matmul_lanes-inl.h"

namespace tessera::TSR_TIER {

constexpr uint16_t kScaleWordOne = 0x3f80;

// 2^(code - 127); code 0 is 2^-127, a subnormal whose only bit is the top one of the mantissa.
inline uint16_t ScaleWord(uint8_t code) { return static_cast<uint16_t>(code == 0 ? 0x0040 : code << 7); }

class ScaleWords {
 public:
  ScaleWords(const QuantView& w, uint16_t* words) : w_(w), words_(words) {
    for (int64_t i = 0; i < PaddedCols(w.cols) / 32; ++i) words_[i] = kScaleWordOne;  // what covers the padding
  }
  const uint16_t* Row(int64_t row_idx) {
    const uint8_t* codes = w_.ScaleRow(row_idx);
    if (codes == last_) return words_;
    last_ = codes;
    const int64_t count = (w_.cols + 31) / 32;
    if (w_.block_cols == 32) {
      for (int64_t i = 0; i < count; ++i) words_[i] = ScaleWord(codes[i]);
      return words_;
    }
    const int64_t words_per_block = w_.block_cols >= w_.cols ? count : w_.block_cols / 32;
    for (int64_t first = 0; first < count; first += words_per_block) {
      const uint16_t word = ScaleWord(*codes++);
      const int64_t end = first + words_per_block < count ? first + words_per_block : count;
      for (int64_t i = first; i < end; ++i) words_[i] = word;
    }
    return words_;
  }

 private:
  const QuantView& w_;
  uint16_t* words_;
  const uint8_t* last_ = nullptr;
};

// Lane l gets word l / 4 of the part's words.
inline MatVec ScaleLanes(const uint16_t* words) {
#if defined(TSR_TIER_AVX512)
  int64_t four;
  std::memcpy(&four, words, 8);
  const __m512i spread = _mm512_set_epi32(0x07068080, 0x07068080, 0x07068080, 0x07068080, 0x05048080, 0x05048080, 0x05048080, 0x05048080,
                                          0x03028080, 0x03028080, 0x03028080, 0x03028080, 0x01008080, 0x01008080, 0x01008080, 0x01008080);
  return {_mm512_castsi512_ps(_mm512_shuffle_epi8(_mm512_set1_epi64(four), spread))};
#elif defined(TSR_TIER_AVX2)
  int32_t two;
  std::memcpy(&two, words, 4);
  const __m256i spread =
      _mm256_set_epi32(0x03028080, 0x03028080, 0x03028080, 0x03028080, 0x01008080, 0x01008080, 0x01008080, 0x01008080);
  return {_mm256_castsi256_ps(_mm256_shuffle_epi8(_mm256_set1_epi32(two), spread))};
#else
  const float scale = BitsToFloat(uint32_t{words[0]} << 16);
  const float lanes[kMatLanes] = {scale, scale, scale, scale};
  return LoadLanes(lanes);
#endif
}

}  // namespace tessera::TSR_TIER
