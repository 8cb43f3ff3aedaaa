// How one key/value vector is stored (spec/model.md section 10): codes and scales, and the part that is not quantised in the activation
// type. Storing codes loses nothing against storing the dequantised value, since every code times its scale is exact in bf16.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tessera {

enum class KvFormat : uint8_t {
  kV4,             // head_dim - rope_dims columns in Q8 blocks of 64; the rope tail as it is
  kV41Window,      // Q8 blocks of 32 over the whole vector
  kV41Compressed,  // Q4e blocks of 16 over the whole vector
};

struct KvRowLayout {
  KvFormat format = KvFormat::kV4;
  int64_t head_dim = 0;
  int64_t rope_dims = 0;
  int64_t codes_bytes = 0;
  int64_t scales_bytes = 0;
  int64_t tail_bytes = 0;  // unquantised columns times the activation type's size
  int64_t row_bytes = 0;   // the three parts, rounded up to 16

  // `activation_bytes` = sizeof(T) of the caller's activation type.
  static KvRowLayout Make(KvFormat format, int64_t head_dim, int64_t rope_dims, int64_t activation_bytes);
  int64_t payload_bytes() const { return codes_bytes + scales_bytes + tail_bytes; }
};

// x: [head_dim] -> row: [row_bytes], and back. T is the type `layout` was made for.
template <class T>
void EncodeKvRow(const KvRowLayout& layout, const T* x, uint8_t* row) noexcept;
template <class T>
void DecodeKvRow(const KvRowLayout& layout, const uint8_t* row, T* x) noexcept;

}  // namespace tessera
