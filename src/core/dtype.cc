#include "core/dtype.h"

#include <array>

namespace tessera {
namespace {

struct NamedDtype {
  Dtype dtype;
  std::string_view name;
};
constexpr std::array<NamedDtype, 8> kNames = {{{Dtype::kBF16, "BF16"},
                                               {Dtype::kF32, "F32"},
                                               {Dtype::kF8E4M3, "F8_E4M3"},
                                               {Dtype::kF8E8M0, "F8_E8M0"},
                                               {Dtype::kI8, "I8"},
                                               {Dtype::kU8, "U8"},
                                               {Dtype::kI32, "I32"},
                                               {Dtype::kI64, "I64"}}};

constexpr std::array<float, 8> kE2m1 = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

}  // namespace

std::string_view DtypeName(Dtype dtype) {
  for (const NamedDtype& entry : kNames)
    if (entry.dtype == dtype) return entry.name;
  return "?";
}

std::optional<Dtype> ParseDtype(std::string_view name) {
  for (const NamedDtype& entry : kNames)
    if (entry.name == name) return entry.dtype;
  return std::nullopt;
}

float E4m3ToFloat(uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return BitsToFloat(0x7fc00000u | (uint32_t{code & 0x80u} << 24));
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t FloatToE4m3(float x) {
  const uint8_t sign = (FloatToBits(x) >> 24) & 0x80u;
  const float a = std::fabs(x);
  if (std::isnan(x)) return sign | 0x7fu;
  if (a >= 448.0f) return sign | 0x7eu;
  // The grid step is 2^-9 up to 2^-6 (subnormals and the first binade), then 2^(e-3) in the binade [2^e, 2^(e+1)).
  const int exponent = a < 0.015625f ? -6 : std::ilogb(a);
  const float steps = std::nearbyint(std::ldexp(a, 3 - exponent));  // 0..8 for subnormals, 8..16 in a binade
  const int code = static_cast<int>(steps) + ((exponent + 6) << 3);
  return sign | static_cast<uint8_t>(code);
}

float E2m1ToFloat(uint8_t code) {
  const float magnitude = kE2m1[code & 7u];
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

uint8_t FloatToE2m1(float x) {
  const uint8_t sign = (FloatToBits(x) >> 28) & 8u;
  const float a = std::fabs(x);
  // Midpoints between neighbours; a tie goes to the even code, hence > at some borders and >= at others.
  uint8_t code = 0;
  if (a > 0.25f) code = 1;
  if (a >= 0.75f) code = 2;
  if (a > 1.25f) code = 3;
  if (a >= 1.75f) code = 4;
  if (a > 2.5f) code = 5;
  if (a >= 3.5f) code = 6;
  if (a > 5.0f) code = 7;
  return sign | code;
}

}  // namespace tessera
