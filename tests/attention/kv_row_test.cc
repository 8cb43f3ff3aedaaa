#include "attention/kv_row.h"

#include <gtest/gtest.h>

#include <cstring>

#include "reference/convert_ref.h"
#include "support/kernel_inputs.h"

namespace tessera {
namespace {

using testing::CodesRef;
using testing::DequantizeRef;
using testing::ForEachTier;
using testing::QuantizeRef;
using testing::QuantizerRef;
using testing::RandomFloats;
using testing::SameBits;
using testing::ToFloats;
using testing::ToT;

// What a format is by spec/model.md section 10: which columns are quantised, by which quantiser, in blocks of what size.
struct FormatRef {
  QuantizerRef quantizer;
  size_t block;
  int64_t quantized_cols;
};
FormatRef Describe(const KvRowLayout& layout) {
  switch (layout.format) {
    case KvFormat::kV4:
      return {QuantizerRef::kQ8, 64, layout.head_dim - layout.rope_dims};
    case KvFormat::kV41Window:
      return {QuantizerRef::kQ8, 32, layout.head_dim};
    case KvFormat::kV41Compressed:
      return {QuantizerRef::kQ4e, 16, layout.head_dim};
  }
  return {};
}

template <class T>
void CheckRow(KvFormat format, int64_t head_dim, int64_t rope_dims, int exponent) {
  SCOPED_TRACE(::testing::Message() << "format " << static_cast<int>(format) << " head_dim " << head_dim << " exponent " << exponent);
  const KvRowLayout layout = KvRowLayout::Make(format, head_dim, rope_dims, sizeof(T));
  const FormatRef ref = Describe(layout);
  std::vector<float> values = RandomFloats(head_dim, static_cast<uint64_t>(head_dim + exponent), exponent);
  values[0] = -0.0f;
  const std::vector<T> x = ToT<T>(values);
  const std::vector<T> quantized(x.begin(), x.begin() + ref.quantized_cols), tail(x.begin() + ref.quantized_cols, x.end());
  const CodesRef codes = QuantizeRef(ref.quantizer, ToFloats(quantized), ref.block);

  // The row byte for byte: tail, codes, scales; what rounds it up to 16 is left alone.
  std::vector<uint8_t> expected(tail.size() * sizeof(T));
  if (!tail.empty()) std::memcpy(expected.data(), tail.data(), expected.size());
  expected.insert(expected.end(), codes.codes.begin(), codes.codes.end());
  expected.insert(expected.end(), codes.scales.begin(), codes.scales.end());
  ASSERT_EQ(layout.payload_bytes(), static_cast<int64_t>(expected.size()));
  expected.resize(static_cast<size_t>(layout.row_bytes), 0xa5);
  std::vector<uint8_t> row(static_cast<size_t>(layout.row_bytes), 0xa5);
  EncodeKvRow<T>(layout, x.data(), row.data());
  EXPECT_EQ(row, expected);

  // And back: the fake-quantised values, which T holds exactly, and the tail to the bit.
  std::vector<T> decoded(x.size());
  DecodeKvRow<T>(layout, row.data(), decoded.data());
  std::vector<T> wanted = ToT<T>(DequantizeRef(ref.quantizer, codes, static_cast<size_t>(ref.quantized_cols), ref.block));
  EXPECT_EQ(ToFloats(wanted), DequantizeRef(ref.quantizer, codes, static_cast<size_t>(ref.quantized_cols), ref.block));
  wanted.insert(wanted.end(), tail.begin(), tail.end());
  EXPECT_TRUE(SameBits(decoded, wanted));
}

template <class T>
void CheckRows() {
  ForEachTier([] {
    for (const int exponent : {-20, -3, 0, 6}) {
      for (const auto& [head_dim, rope_dims] : {std::pair{512, 64}, {128, 64}, {70, 6}, {100, 2}, {34, 32}, {192, 64}}) {
        CheckRow<T>(KvFormat::kV4, head_dim, rope_dims, exponent);
        CheckRow<T>(KvFormat::kV41Window, head_dim, rope_dims, exponent);
        CheckRow<T>(KvFormat::kV41Compressed, head_dim, rope_dims, exponent);
      }
    }
  });
}

TEST(KvRowTest, Bf16RowsAreTheQuantisersBytesAndComeBack) { CheckRows<bf16>(); }
TEST(KvRowTest, FloatRowsAreTheQuantisersBytesAndComeBack) { CheckRows<float>(); }

TEST(KvRowTest, TheTailKeepsEveryBit) {
  const KvRowLayout layout = KvRowLayout::Make(KvFormat::kV4, 128, 64, sizeof(bf16));
  std::vector<bf16> x(128, bf16{0x3f80});
  for (size_t i = 64; i < 128; ++i) x[i].bits = static_cast<uint16_t>(0x7fc1 + 517 * i);  // NaNs and infinities among them
  std::vector<uint8_t> row(static_cast<size_t>(layout.row_bytes));
  EncodeKvRow<bf16>(layout, x.data(), row.data());
  std::vector<bf16> decoded(128);
  DecodeKvRow<bf16>(layout, row.data(), decoded.data());
  EXPECT_TRUE(SameBits(decoded, x));
}

TEST(KvRowTest, SizesOfTheReleasedModels) {
  const KvRowLayout v4 = KvRowLayout::Make(KvFormat::kV4, 512, 64, 2);
  EXPECT_EQ(v4.codes_bytes, 448);
  EXPECT_EQ(v4.scales_bytes, 7);
  EXPECT_EQ(v4.tail_bytes, 128);
  EXPECT_EQ(v4.payload_bytes(), 583);
  EXPECT_EQ(v4.row_bytes, 592);
  EXPECT_EQ(KvRowLayout::Make(KvFormat::kV4, 512, 64, 4).tail_bytes, 256);
  const KvRowLayout window = KvRowLayout::Make(KvFormat::kV41Window, 512, 64, 2);
  EXPECT_EQ(window.payload_bytes(), 512 + 16);
  EXPECT_EQ(window.row_bytes, 528);
  const KvRowLayout compressed = KvRowLayout::Make(KvFormat::kV41Compressed, 512, 64, 2);
  EXPECT_EQ(compressed.payload_bytes(), 256 + 32);
  EXPECT_EQ(compressed.row_bytes, 288);
}

TEST(KvRowDeathTest, RefusesAVectorThatIsAllTail) {
  EXPECT_DEATH(KvRowLayout::Make(KvFormat::kV4, 64, 64, 2), "head_dim 64 with 64 rope dims");
}

}  // namespace
}  // namespace tessera
