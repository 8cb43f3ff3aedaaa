#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/tensors.h"

namespace tessera {
namespace {

void ExpectSameBits(float actual, float expected, int code) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << "code " << code;
  } else {
    EXPECT_EQ(FloatToBits(actual), FloatToBits(expected)) << "code " << code << ": " << actual << " for " << expected;
  }
}

TEST(DtypeTest, EveryCodeDecodesToItsGoldenValue) {
  const auto tensors = testing::ReadTensors("tests/golden/formats/formats.safetensors");
  const std::vector<float> e4m3 = tensors.at("e4m3.decode").As<float>();
  const std::vector<float> e2m1 = tensors.at("e2m1.decode").As<float>();
  const std::vector<float> e8m0 = tensors.at("e8m0.decode").As<float>();
  ASSERT_EQ(e4m3.size(), 256u);
  ASSERT_EQ(e2m1.size(), 16u);
  ASSERT_EQ(e8m0.size(), 256u);
  for (int code = 0; code < 256; ++code) ExpectSameBits(E4m3ToFloat(static_cast<uint8_t>(code)), e4m3[code], code);
  for (int code = 0; code < 16; ++code) ExpectSameBits(E2m1ToFloat(static_cast<uint8_t>(code)), e2m1[code], code);
  for (int code = 0; code < 256; ++code) ExpectSameBits(E8m0ToFloat(static_cast<uint8_t>(code)), e8m0[code], code);
}

TEST(DtypeTest, Pow2CeilMatchesGoldenValues) {
  const auto tensors = testing::ReadTensors("tests/golden/formats/formats.safetensors");
  const std::vector<float> in = tensors.at("pow2ceil.in").As<float>(), out = tensors.at("pow2ceil.out").As<float>();
  ASSERT_FALSE(in.empty());
  for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(Pow2Ceil(in[i]), out[i]) << in[i];
}

// Codes 0..last of a format whose values grow with the code: every value encodes to its code, every midpoint of neighbours to the even
// one, and the fp32 neighbours of a midpoint to the nearer one; the same with the sign.
template <class Encode, class Decode>
void ExpectNearestEven(Encode encode, Decode decode, int last, int sign) {
  for (int code = 0; code <= last; ++code) {
    const float value = decode(static_cast<uint8_t>(code));
    EXPECT_EQ(encode(value), code);
    EXPECT_EQ(encode(-value), code | sign);
    if (code == last) continue;
    const float next = decode(static_cast<uint8_t>(code + 1));
    const float middle = (value + next) / 2;  // exact: both have at most four significant bits
    const int even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(encode(middle), even) << middle;
    EXPECT_EQ(encode(-middle), even | sign) << middle;
    EXPECT_EQ(encode(std::nextafter(middle, 0.0f)), code) << middle;
    EXPECT_EQ(encode(std::nextafter(middle, 1e9f)), code + 1) << middle;
  }
}

TEST(DtypeTest, E4m3EncodesToNearestTiesToEven) { ExpectNearestEven(FloatToE4m3, E4m3ToFloat, 0x7e, 0x80); }
TEST(DtypeTest, E2m1EncodesToNearestTiesToEven) { ExpectNearestEven(FloatToE2m1, E2m1ToFloat, 7, 8); }

TEST(DtypeTest, EncodersSaturateAndKeepNan) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float large : {449.0f, 464.0f, 465.0f, 1e30f, infinity}) {
    EXPECT_EQ(FloatToE4m3(large), 0x7e);
    EXPECT_EQ(FloatToE4m3(-large), 0xfe);
    EXPECT_EQ(FloatToE2m1(large), 7);
    EXPECT_EQ(FloatToE2m1(-large), 15);
  }
  EXPECT_EQ(FloatToE4m3(nan) & 0x7f, 0x7f);
  EXPECT_EQ(FloatToE4m3(1e-30f), 0);
  EXPECT_EQ(FloatToE4m3(-0.0f), 0x80);
  EXPECT_EQ(FloatToE2m1(-1e-30f), 8);
}

TEST(DtypeTest, EveryBf16RoundTripsAndEveryMidpointGoesToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bf16 value{static_cast<uint16_t>(bits)};
    const float wide = ToFloat(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToBf16(wide))));
      continue;
    }
    ASSERT_EQ(ToBf16(wide).bits, bits);
    if (std::isinf(wide)) continue;
    const uint32_t middle = (bits << 16) | 0x8000u;  // halfway to the next code of the same sign, which may be infinity
    ASSERT_EQ(ToBf16(BitsToFloat(middle)).bits, bits + (bits & 1u));
    ASSERT_EQ(ToBf16(BitsToFloat(middle - 1)).bits, bits);
    ASSERT_EQ(ToBf16(BitsToFloat(middle + 1)).bits, bits + 1);
  }
}

TEST(DtypeTest, Bf16KeepsNanWhosePayloadIsInTheLowerHalf) {
  EXPECT_TRUE(std::isnan(ToFloat(ToBf16(BitsToFloat(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(ToFloat(ToBf16(BitsToFloat(0xff80ffffu)))));
}

TEST(DtypeTest, NamesParseBack) {
  for (const Dtype dtype : {Dtype::kBF16, Dtype::kF32, Dtype::kF8E4M3, Dtype::kF8E8M0, Dtype::kI8, Dtype::kU8, Dtype::kI32, Dtype::kI64}) {
    ASSERT_TRUE(ParseDtype(DtypeName(dtype)).has_value());
    EXPECT_EQ(*ParseDtype(DtypeName(dtype)), dtype);
  }
  EXPECT_FALSE(ParseDtype("F16").has_value());
  EXPECT_FALSE(ParseDtype("").has_value());
  EXPECT_EQ(DtypeBytes(Dtype::kBF16), 2);
  EXPECT_EQ(DtypeBytes(Dtype::kI64), 8);
  EXPECT_EQ(DtypeBytes(Dtype::kF8E8M0), 1);
}

}  // namespace
}  // namespace tessera
