// Storage formats of a checkpoint under the names safetensors gives them, and the exact scalar value of each code.
// The encoders round to nearest, ties to the even code; they are the slow, exact form that kernels are tested against.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace tessera {

enum class Dtype : uint8_t { kBF16, kF32, kF8E4M3, kF8E8M0, kI8, kU8, kI32, kI64 };

constexpr int DtypeBytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBF16: return 2;
    case Dtype::kF32:
    case Dtype::kI32: return 4;
    case Dtype::kI64: return 8;
    default: return 1;
  }
}
std::string_view DtypeName(Dtype dtype);                    // "BF16", "F8_E4M3", ... as in a safetensors header
std::optional<Dtype> ParseDtype(std::string_view name);     // nullopt for a name that is none of ours

inline float BitsToFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t FloatToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

// bfloat16: the upper half of an fp32.
struct bf16 {
  uint16_t bits;
};
inline float ToFloat(bf16 x) { return BitsToFloat(uint32_t{x.bits} << 16); }
inline float ToFloat(float x) { return x; }
// Nearest even; NaN stays NaN (quiet).
inline bf16 ToBf16(float x) {
  uint32_t bits = FloatToBits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<uint16_t>(bits >> 16)};
}
// Conversion to the activation type T (bf16 rounds once, float keeps).
template <class T>
T FromFloat(float x);
template <>
inline float FromFloat<float>(float x) { return x; }
template <>
inline bf16 FromFloat<bf16>(float x) { return ToBf16(x); }

// e4m3fn: bias 7, no infinities, 0x7f and 0xff are NaN, largest 448.
float E4m3ToFloat(uint8_t code);
uint8_t FloatToE4m3(float x);   // |x| <= 448 (larger values saturate), sign of zero kept
// e2m1: {0, .5, 1, 1.5, 2, 3, 4, 6}, bit 3 is the sign.
float E2m1ToFloat(uint8_t code);
uint8_t FloatToE2m1(float x);   // |x| <= 6 (larger values saturate), sign of zero kept
// e8m0: 2^(code - 127); 255 is NaN; 0 is 2^-127, an fp32 subnormal.
inline float E8m0ToFloat(uint8_t code) {
  if (code == 0) return BitsToFloat(0x00400000u);
  if (code == 255) return BitsToFloat(0x7fc00000u);
  return BitsToFloat(uint32_t{code} << 23);
}

// Smallest power of two >= v, on the IEEE bits; v > 0 and normal. (spec: pow2ceil)
inline float Pow2Ceil(float v) {
  const uint32_t bits = FloatToBits(v);
  return BitsToFloat(((bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1u : 0u)) << 23);
}

}  // namespace tessera
