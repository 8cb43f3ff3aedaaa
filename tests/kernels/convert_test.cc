#include "kernels/convert.h"

#include <gtest/gtest.h>

#include "reference/convert_ref.h"
#include "support/kernel_inputs.h"
#include "support/tensors.h"

namespace tessera::testing {
namespace {

template <class T>
void Quantize(QuantizerRef kind, const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) {
  if (kind == QuantizerRef::kQ8) QuantizeQ8(x, cols, block, codes, scales);
  if (kind == QuantizerRef::kQ4) QuantizeQ4(x, cols, block, codes, scales);
  if (kind == QuantizerRef::kQ4e) QuantizeQ4e(x, cols, block, codes, scales);
}
template <class T>
void Dequantize(QuantizerRef kind, const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) {
  if (kind == QuantizerRef::kQ8) DequantizeQ8(codes, scales, cols, block, x);
  if (kind == QuantizerRef::kQ4) DequantizeQ4(codes, scales, cols, block, x);
  if (kind == QuantizerRef::kQ4e) DequantizeQ4e(codes, scales, cols, block, x);
}

constexpr QuantizerRef kKinds[] = {QuantizerRef::kQ8, QuantizerRef::kQ4, QuantizerRef::kQ4e};

// Both directions on the active tier against the scalar definitions, bit for bit.
template <class T>
void ExpectSameAsDefinition(QuantizerRef kind, const std::vector<float>& values, int64_t block, int64_t shift) {
  const std::vector<T> x = ToT<T>(values);
  const int64_t cols = static_cast<int64_t>(x.size());
  const CodesRef want = QuantizeRef(kind, ToFloats(x), static_cast<size_t>(block));
  Guarded<T> in(x, shift);
  Guarded<uint8_t> codes(static_cast<int64_t>(want.codes.size()), shift), scales(static_cast<int64_t>(want.scales.size()), shift);
  Quantize(kind, in.data(), cols, block, codes.data(), scales.data());
  ASSERT_TRUE(SameBits(scales.Values(), want.scales)) << "cols " << cols << " block " << block;
  ASSERT_TRUE(SameBits(codes.Values(), want.codes)) << "cols " << cols << " block " << block;
  EXPECT_TRUE(codes.GuardsIntact() && scales.GuardsIntact());

  Guarded<T> out(cols, shift);
  Dequantize(kind, codes.data(), scales.data(), cols, block, out.data());
  const std::vector<T> back = ToT<T>(DequantizeRef(kind, want, static_cast<size_t>(cols), static_cast<size_t>(block)));
  ASSERT_TRUE(SameBits(out.Values(), back)) << "cols " << cols << " block " << block;
  EXPECT_TRUE(out.GuardsIntact());
  if (kind == QuantizerRef::kQ8) {
    Guarded<T> fake(x, shift);
    FakeQuantizeQ8(fake.data(), cols, block);
    ASSERT_TRUE(SameBits(fake.Values(), back)) << "fake-quantise, cols " << cols << " block " << block;
    EXPECT_TRUE(fake.GuardsIntact());
  }
}

// Values where roundings and clamps decide: zeros, format borders with their neighbours, ties of every grid, subnormals.
std::vector<float> EdgeValues() {
  std::vector<float> edges = {0.0f, 1e-4f, 0x1p-126f, 0x1p-149f, 0x1.8p-127f, 3e38f, 6 * 0x1p-126f};
  for (int k = -12; k <= 12; ++k)
    for (int m = 16; m < 33; ++m) edges.push_back(std::ldexp(static_cast<float>(m), k - 4));  // e4m3 grid points and ties
  for (float v : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f, 448.0f}) edges.push_back(v);
  std::vector<float> all;
  for (float v : edges)
    for (float w : {v, std::nextafter(v, 0.0f), std::nextafter(v, 1e38f)}) all.push_back(w), all.push_back(-w);
  return all;
}

template <class T>
void CheckEverything() {
  for (QuantizerRef kind : kKinds) {
    for (int64_t block : {2, 16, 32, 64, 128}) {
      for (int64_t cols = 0; cols <= kTailMax; ++cols)
        ExpectSameAsDefinition<T>(kind, RandomFloats(cols, static_cast<uint64_t>(cols), static_cast<int>(cols % 23) - 11), block, cols % 3);
      for (int64_t cols : {127, 128, 129, 448, 512, 1023, 1025, 2600})
        ExpectSameAsDefinition<T>(kind, RandomFloats(cols, static_cast<uint64_t>(cols + block), static_cast<int>(block % 7)), block, 1);
      ExpectSameAsDefinition<T>(kind, EdgeValues(), block, 1);
    }
    ExpectSameAsDefinition<T>(kind, RandomFloats(3000, 9), 1024, 0);
    // Each edge in a block whose largest value is the format's largest, so that the scale is 1 and ties stay ties.
    std::vector<float> unit_scale;
    for (float v : EdgeValues()) {
      const float largest = kind == QuantizerRef::kQ8 ? 448.0f : 6.0f;
      unit_scale.push_back(std::fabs(v) <= largest ? v : 0.0f);
      unit_scale.push_back(largest);
    }
    ExpectSameAsDefinition<T>(kind, unit_scale, 2, 0);
  }
}

TEST(ConvertTest, EqualsTheScalarDefinitionsOnEveryTier) {
  ForEachTier([] { CheckEverything<float>(); });
  ForEachTier([] { CheckEverything<bf16>(); });
}

TEST(ConvertTest, EveryBf16ValueAsABlockOfItsOwn) {
  std::vector<float> all;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    all.push_back(BitsToFloat(high << 16));
    all.push_back(0.0f);
  }
  ForEachTier([&] {
    for (QuantizerRef kind : kKinds) ExpectSameAsDefinition<bf16>(kind, all, 2, 0);
  });
}

TEST(ConvertTest, NanAndInfinityMakeTheirBlockNanAndNoOther) {
  ForEachTier([] {
    for (QuantizerRef kind : kKinds)
      for (float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
        std::vector<float> x = RandomFloats(70, 3);
        x[37] = bad;
        ExpectSameAsDefinition<float>(kind, x, 16, 0);
        ExpectSameAsDefinition<bf16>(kind, x, 16, 0);
      }
  });
}

TEST(ConvertTest, DecodesEveryCodeUnderEveryScale) {
  for (QuantizerRef kind : kKinds) {
    CodesRef codes;
    for (int scale = 0; scale < 256; ++scale) {
      if (kind == QuantizerRef::kQ4e && (scale & 0x7f) == 0x7f) continue;
      codes.scales.push_back(static_cast<uint8_t>(scale));
      for (int code = 0; code < 256; ++code) codes.codes.push_back(static_cast<uint8_t>(code));
    }
    const int64_t block = kind == QuantizerRef::kQ8 ? 256 : 512;
    const int64_t cols = block * static_cast<int64_t>(codes.scales.size());
    const std::vector<float> want = DequantizeRef(kind, codes, static_cast<size_t>(cols), static_cast<size_t>(block));
    ForEachTier([&] {
      std::vector<float> x(static_cast<size_t>(cols));
      Dequantize(kind, codes.codes.data(), codes.scales.data(), cols, block, x.data());
      EXPECT_TRUE(SameBits(x, want));
      std::vector<bf16> y(static_cast<size_t>(cols));
      Dequantize(kind, codes.codes.data(), codes.scales.data(), cols, block, y.data());
      EXPECT_TRUE(SameBits(y, ToT<bf16>(want)));
    });
  }
}

void CheckGolden(QuantizerRef kind, const std::string& name, const std::map<std::string, Tensor>& golden) {
  SCOPED_TRACE(name);
  const int64_t block = golden.at(name + ".in").shape[1];
  const std::vector<float> in = golden.at(name + ".in").As<float>(), scale = golden.at(name + ".scale").As<float>();
  const std::vector<float> out = golden.at(name + ".out").As<float>();
  const std::vector<uint8_t> code_list = golden.at(name + ".codes").As<uint8_t>();
  const int64_t cols = static_cast<int64_t>(in.size());
  ASSERT_GE(cols, 26 * block);
  std::vector<uint8_t> codes(in.size()), scales(scale.size());
  Quantize(kind, in.data(), cols, block, codes.data(), scales.data());
  for (size_t b = 0; b < scale.size(); ++b) EXPECT_EQ(ScaleValueRef(kind, scales[b]), scale[b]) << "block " << b;
  for (size_t i = 0; i < in.size(); ++i) {
    const uint8_t code = kind == QuantizerRef::kQ8 ? codes[i] : (codes[i / 2] >> (i % 2 * 4)) & 15;
    EXPECT_EQ(code, code_list[i]) << "element " << i << " " << in[i];
  }
  std::vector<float> back(in.size());
  Dequantize(kind, codes.data(), scales.data(), cols, block, back.data());
  EXPECT_TRUE(SameBits(back, out));
  if (kind != QuantizerRef::kQ8) return;
  back = in;
  FakeQuantizeQ8(back.data(), cols, block);
  EXPECT_TRUE(SameBits(back, out));
}

TEST(ConvertTest, EqualsTheGoldenVectors) {
  const auto golden = ReadTensors("tests/golden/formats/formats.safetensors");
  ForEachTier([&] {
    for (const char* name : {"Q8.b32", "Q8.b64", "Q8.b128"}) CheckGolden(QuantizerRef::kQ8, name, golden);
    CheckGolden(QuantizerRef::kQ4, "Q4.b32", golden);
    CheckGolden(QuantizerRef::kQ4e, "Q4e.b16", golden);
  });
}

TEST(ConvertTest, RowsConvertWithOneRounding) {
  ForEachTier([] {
    for (int64_t cols = 0; cols <= kTailMax; ++cols) {
      const std::vector<float> x = RandomFloats(cols, 5);
      Guarded<float> in(x, cols % 3);
      Guarded<bf16> narrow(cols, cols % 5);
      Guarded<float> wide(cols, 1);
      ConvertRow(in.data(), cols, narrow.data());
      ConvertRow(narrow.data(), cols, wide.data());
      EXPECT_TRUE(SameBits(narrow.Values(), ToT<bf16>(x)));
      EXPECT_TRUE(SameBits(wide.Values(), ToFloats(ToT<bf16>(x))));
      EXPECT_TRUE(narrow.GuardsIntact() && wide.GuardsIntact());
      ConvertRow(in.data(), cols, wide.data());
      EXPECT_TRUE(SameBits(wide.Values(), x));
      Guarded<bf16> copy(cols, 0);
      ConvertRow(narrow.data(), cols, copy.data());
      EXPECT_TRUE(SameBits(copy.Values(), narrow.Values()));
    }
  });
}

}  // namespace
}  // namespace tessera::testing
