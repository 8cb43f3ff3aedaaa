#include "kernels/gather_rows.h"

#include <gtest/gtest.h>

#include "reference/gather_rows_ref.h"
#include "support/kernel_inputs.h"

namespace tessera::testing {
namespace {

std::vector<uint8_t> RandomBytes(int64_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(generator());
  return bytes;
}

template <class T>
void CheckGatherRow(int64_t cols, int copies) {
  constexpr int64_t kRows = 3;
  std::vector<uint8_t> bytes(1);  // the table starts at an odd address, as a mapped file may have it
  for (float v : RandomFloats(kRows * cols, static_cast<uint64_t>(cols))) {
    const bf16 b = ToBf16(v);
    bytes.push_back(static_cast<uint8_t>(b.bits));
    bytes.push_back(static_cast<uint8_t>(b.bits >> 8));
  }
  const QuantView table = {.payload = bytes.data() + 1, .format = Format::kBF16, .rows = kRows, .cols = cols, .row_bytes = 2 * cols};
  const int64_t stride = cols + 3;
  for (int64_t row = 0; row < kRows; ++row) {
    Guarded<T> out(stride * copies, 1);
    const std::vector<T> before = out.Values();
    GatherRow(table, row, copies, stride, out.data());
    std::vector<T> want = before;
    const std::vector<T> values = ToT<T>(GatherRowRef(table.Row(row), cols));
    for (int c = 0; c < copies; ++c) std::copy(values.begin(), values.end(), want.begin() + c * stride);
    EXPECT_TRUE(SameBits(out.Values(), want)) << "cols " << cols << " row " << row;
    EXPECT_TRUE(out.GuardsIntact());
  }
}

TEST(GatherRowsTest, CopiesARowExactlyIntoEveryStream) {
  ForEachTier([] {
    for (int64_t cols = 0; cols <= kTailMax; ++cols) {
      CheckGatherRow<float>(cols, 4);
      CheckGatherRow<bf16>(cols, 1);
    }
    CheckGatherRow<float>(1000, 2);
    CheckGatherRow<bf16>(1000, 4);
    CheckGatherRow<float>(5, 0);
  });
}

template <class T>
void CheckQuantized(int64_t cols) {
  std::vector<uint8_t> codes = RandomBytes(cols, static_cast<uint64_t>(cols)), scales = RandomBytes((cols + 31) / 32, 8);
  for (uint8_t& s : scales) s = s == 255 ? 254 : s;
  Guarded<T> out(cols, cols % 3);
  ASSERT_TRUE(GatherQuantizedRow(codes.data(), scales.data(), cols, out.data()));
  EXPECT_TRUE(SameBits(out.Values(), ToT<T>(GatherQuantizedRowRef(codes.data(), scales.data(), cols)))) << "cols " << cols;
  EXPECT_TRUE(out.GuardsIntact());
  if (scales.empty()) return;
  scales.back() = 255;
  EXPECT_FALSE(GatherQuantizedRow(codes.data(), scales.data(), cols, out.data()));
  EXPECT_TRUE(SameBits(out.Values(), std::vector<T>(static_cast<size_t>(cols), FromFloat<T>(0.0f))));
}

TEST(GatherRowsTest, DequantisesAnEngramRowAndRefusesANanScale) {
  ForEachTier([] {
    for (int64_t cols = 0; cols <= 2 * kTailMax; ++cols) {
      CheckQuantized<float>(cols);
      CheckQuantized<bf16>(cols);
    }
    CheckQuantized<bf16>(256);
  });
}

}  // namespace
}  // namespace tessera::testing
