#include "engine/context_fill.h"

#include <algorithm>
#include <cstring>

#include "attention/kv_row.h"
#include "core/check.h"
#include "core/random.h"

namespace tessera {
namespace {

// e4m3 codes uniform over all but NaN have a root mean square of about 130: this scale makes it about 1.
constexpr uint8_t kQ8Scale = 120;
// e2m1 codes have one of 2.8. Neighbouring blocks differ by factors of two, as those of real vectors do.
constexpr uint8_t kQ4ScaleLow = 124;   // E8M0: 1/8, 1/4, 1/2, 1
constexpr uint8_t kQ4eScaleLow = 0x28;  // e4m3: 1/4 ... 0.94

// Random bytes of one row: 16 of them for each counter.
class RowRandom {
 public:
  RowRandom(uint64_t seed, uint64_t cache_idx, int32_t slot, int64_t row_idx)
      : seed_(seed), counter_(static_cast<uint64_t>(row_idx) << 16), stream_(cache_idx << 32 | static_cast<uint32_t>(slot)) {}

  void Fill(uint8_t* bytes, int64_t count) {
    for (int64_t i = 0; i < count; i += 16) {
      const std::array<uint32_t, 4> words = Philox4x32(seed_, counter_++, stream_);
      std::memcpy(bytes + i, words.data(), static_cast<size_t>(std::min<int64_t>(16, count - i)));
    }
  }
  // Uniform in [-2, 2).
  void FillFloats(float* values, int64_t count) {
    for (int64_t i = 0; i < count; i += 4) {
      const std::array<uint32_t, 4> words = Philox4x32(seed_, counter_++, stream_);
      for (int64_t k = 0; k < std::min<int64_t>(4, count - i); ++k)
        values[i + k] = static_cast<float>(static_cast<int32_t>(words[static_cast<size_t>(k)])) * 0x1p-30f;
    }
  }

 private:
  uint64_t seed_;
  uint64_t counter_;
  uint64_t stream_;
};

void FillE4m3(RowRandom& random, uint8_t* codes, int64_t count) {
  random.Fill(codes, count);
  for (int64_t i = 0; i < count; ++i) codes[i] = (codes[i] & 0x7f) == 0x7f ? codes[i] ^ 1 : codes[i];
}

// `low` + 0 ... `choices` - 1; choices is a power of two.
void FillScales(RowRandom& random, uint8_t* scales, int64_t count, uint8_t low, int choices) {
  random.Fill(scales, count);
  for (int64_t i = 0; i < count; ++i) scales[i] = static_cast<uint8_t>(low + (scales[i] & (choices - 1)));
}

void FillKvRow(const KvRowLayout& layout, RowRandom& random, uint8_t* row) {
  uint8_t* codes = row + layout.tail_bytes;
  uint8_t* scales = codes + layout.codes_bytes;
  if (layout.format == KvFormat::kV41Compressed) {
    random.Fill(codes, layout.codes_bytes);
    FillScales(random, scales, layout.scales_bytes, kQ4eScaleLow, 16);
    return;
  }
  FillE4m3(random, codes, layout.codes_bytes);
  std::memset(scales, kQ8Scale, static_cast<size_t>(layout.scales_bytes));
  if (layout.tail_bytes == 0) return;
  float tail[kRopeDimsMax];
  random.FillFloats(tail, layout.rope_dims);
  if (layout.tail_bytes == layout.rope_dims * static_cast<int64_t>(sizeof(float))) {
    std::memcpy(row, tail, static_cast<size_t>(layout.tail_bytes));
  } else {
    for (int64_t i = 0; i < layout.rope_dims; ++i) {
      const bf16 value = ToBf16(tail[i]);
      std::memcpy(row + i * 2, &value, 2);
    }
  }
}

void FillRow(const CacheLayout& layout, const KvRowLayout& kv, int64_t compressed_vocab, RowRandom& random, uint8_t* row) {
  switch (layout.kind) {
    case CacheKind::kWindow:
    case CacheKind::kCompressed:
      return FillKvRow(kv, random, row);
    case CacheKind::kIndexCodes:
      return random.Fill(row, layout.row_bytes);
    case CacheKind::kIndexScales:
      return FillScales(random, row, layout.row_bytes, kQ4ScaleLow, 4);
    case CacheKind::kPending:
    case CacheKind::kIndexPending:
      return random.FillFloats(reinterpret_cast<float*>(row), layout.row_bytes / static_cast<int64_t>(sizeof(float)));
    case CacheKind::kEngramHistory: {
      uint32_t bits = 0;
      random.Fill(reinterpret_cast<uint8_t*>(&bits), sizeof bits);
      const auto id = static_cast<int32_t>(bits % static_cast<uint64_t>(std::max<int64_t>(1, compressed_vocab)));
      std::memcpy(row, &id, sizeof id);
      return;
    }
  }
}

}  // namespace

void FillContext(KvCache& cache, const ModelConfig& config, Numerics numerics, int32_t slot, int64_t num_tokens, uint64_t seed) {
  for (size_t cache_idx = 0; cache_idx < cache.layouts().size(); ++cache_idx) {
    const CacheLayout& layout = cache.layouts()[cache_idx];
    const RowStore store = cache.Store(layout.layer_idx, layout.kind);
    const bool compressed = layout.kind == CacheKind::kCompressed;
    const KvFormat format = !config.v41() ? KvFormat::kV4 : compressed ? KvFormat::kV41Compressed : KvFormat::kV41Window;
    const KvRowLayout kv = KvRowLayout::Make(format, config.head_dim, config.qk_rope_head_dim, ActivationBytes(numerics));
    const bool is_ring = layout.ring_tokens > 0;
    const int64_t end = is_ring ? num_tokens : num_tokens / layout.ratio;
    const int64_t begin = is_ring ? std::max<int64_t>(0, num_tokens - layout.ring_tokens) : 0;
    TSR_CHECK(end - begin <= layout.rows_per_slot, "layer {}: {} rows for {}", layout.layer_idx, layout.rows_per_slot, end - begin);
    for (int64_t row_idx = begin; row_idx < end; ++row_idx) {
      RowRandom random(seed, cache_idx, slot, row_idx);
      FillRow(layout, kv, config.engram_compressed_vocab_size, random,
              is_ring ? store.RingRow(slot, row_idx) : store.Row(slot, row_idx));
    }
  }
}

}  // namespace tessera
