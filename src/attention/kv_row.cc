#include "attention/kv_row.h"

#include <cstring>

#include "core/check.h"
#include "kernels/convert.h"

namespace tessera {
namespace {

constexpr int64_t kV4Block = 64;
constexpr int64_t kV41WindowBlock = 32;
constexpr int64_t kV41CompressedBlock = 16;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

KvRowLayout KvRowLayout::Make(KvFormat format, int64_t head_dim, int64_t rope_dims, int64_t activation_bytes) {
  TSR_CHECK(head_dim > rope_dims && rope_dims >= 0, "head_dim {} with {} rope dims", head_dim, rope_dims);
  KvRowLayout layout{format, head_dim, rope_dims};
  switch (format) {
    case KvFormat::kV4:
      layout.codes_bytes = head_dim - rope_dims;
      layout.scales_bytes = CeilDiv(head_dim - rope_dims, kV4Block);
      layout.tail_bytes = rope_dims * activation_bytes;
      break;
    case KvFormat::kV41Window:
      layout.codes_bytes = head_dim;
      layout.scales_bytes = CeilDiv(head_dim, kV41WindowBlock);
      break;
    case KvFormat::kV41Compressed:
      layout.codes_bytes = CeilDiv(head_dim, 2);
      layout.scales_bytes = CeilDiv(head_dim, kV41CompressedBlock);
      break;
  }
  layout.row_bytes = CeilDiv(layout.payload_bytes(), 16) * 16;
  return layout;
}

// The tail comes first, so that its elements are aligned.
template <class T>
void EncodeKvRow(const KvRowLayout& layout, const T* x, uint8_t* row) noexcept {
  uint8_t* codes = row + layout.tail_bytes;
  uint8_t* scales = codes + layout.codes_bytes;
  switch (layout.format) {
    case KvFormat::kV4:
      QuantizeQ8(x, layout.codes_bytes, kV4Block, codes, scales);
      std::memcpy(row, x + layout.codes_bytes, static_cast<size_t>(layout.tail_bytes));
      return;
    case KvFormat::kV41Window:
      return QuantizeQ8(x, layout.head_dim, kV41WindowBlock, codes, scales);
    case KvFormat::kV41Compressed:
      return QuantizeQ4e(x, layout.head_dim, kV41CompressedBlock, codes, scales);
  }
}

template <class T>
void DecodeKvRow(const KvRowLayout& layout, const uint8_t* row, T* x) noexcept {
  const uint8_t* codes = row + layout.tail_bytes;
  const uint8_t* scales = codes + layout.codes_bytes;
  switch (layout.format) {
    case KvFormat::kV4:
      DequantizeQ8(codes, scales, layout.codes_bytes, kV4Block, x);
      std::memcpy(x + layout.codes_bytes, row, static_cast<size_t>(layout.tail_bytes));
      return;
    case KvFormat::kV41Window:
      return DequantizeQ8(codes, scales, layout.head_dim, kV41WindowBlock, x);
    case KvFormat::kV41Compressed:
      return DequantizeQ4e(codes, scales, layout.head_dim, kV41CompressedBlock, x);
  }
}

template void EncodeKvRow<float>(const KvRowLayout&, const float*, uint8_t*) noexcept;
template void EncodeKvRow<bf16>(const KvRowLayout&, const bf16*, uint8_t*) noexcept;
template void DecodeKvRow<float>(const KvRowLayout&, const uint8_t*, float*) noexcept;
template void DecodeKvRow<bf16>(const KvRowLayout&, const uint8_t*, bf16*) noexcept;

}  // namespace tessera
