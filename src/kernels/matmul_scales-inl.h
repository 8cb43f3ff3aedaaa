// E8M0 scales of one weight row, spread to one 16-bit word (the upper half of the fp32 value) per 32 columns, whatever the block shape;
// and the lane-wise scale vector of a part made from those words. A row that shares its scales with the one before costs nothing.
#pragma once

#include "core/quant_view.h"
#include "kernels/matmul_body.h"
#include "kernels/matmul_lanes-inl.h"

namespace tessera::TSR_TIER {

// 2^(code - 127); code 0 is 2^-127, a subnormal whose only bit is the top one of the mantissa.
inline uint16_t ScaleWord(uint8_t code) { return static_cast<uint16_t>(code == 0 ? 0x0040 : code << 7); }

class ScaleWords {
 public:
  // For columns [first_col, end_col), multiples of 32; what lies beyond the matrix gets scale 1.
  ScaleWords(const QuantView& w, int64_t first_col, int64_t end_col, uint16_t* words)
      : w_(w), words_(words), first_(first_col / 32), end_((w.cols + 31) / 32) {
    if (end_col / 32 < end_) end_ = end_col / 32;
    for (int64_t i = end_; i < end_col / 32; ++i) words_[i - first_] = 0x3f80;
  }
  // The words of a row, the first one for first_col; valid until the next call.
  const uint16_t* Row(int64_t row_idx) {
    const uint8_t* codes = w_.ScaleRow(row_idx);
    if (codes == last_) return words_;
    last_ = codes;
    if (w_.block_cols == 32) {
      for (int64_t i = first_; i < end_; ++i) words_[i - first_] = ScaleWord(codes[i]);
      return words_;
    }
    const int64_t block_words = w_.block_cols >= w_.cols ? end_ : w_.block_cols / 32;
    for (int64_t i = first_; i < end_;) {
      const int64_t block_idx = i / block_words;
      const uint16_t word = ScaleWord(codes[block_idx]);
      const int64_t block_end = (block_idx + 1) * block_words < end_ ? (block_idx + 1) * block_words : end_;
      for (; i < block_end; ++i) words_[i - first_] = word;
    }
    return words_;
  }

 private:
  const QuantView& w_;
  uint16_t* words_;
  int64_t first_;
  int64_t end_;
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
  const __m256i spread = _mm256_set_epi32(0x03028080, 0x03028080, 0x03028080, 0x03028080, 0x01008080, 0x01008080, 0x01008080, 0x01008080);
  return {_mm256_castsi256_ps(_mm256_shuffle_epi8(_mm256_set1_epi32(two), spread))};
#else
  const float scale = BitsToFloat(uint32_t{words[0]} << 16);
  const float lanes[kMatLanes] = {scale, scale, scale, scale};
  return LoadLanes(lanes);
#endif
}

}  // namespace tessera::TSR_TIER
