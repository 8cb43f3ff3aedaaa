#include "kernels/matmul.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/tier.h"
#include "reference/matmul_ref.h"
#include "support/matrices.h"
#include "support/sanitized.h"

namespace tessera::testing {
namespace {

constexpr Format kFormats[] = {Format::kBF16, Format::kF32, Format::kE4M3, Format::kE2M1};

std::string Name(const MatrixShape& shape) {
  const char* const names[] = {"bf16", "f32", "e4m3", "e2m1"};
  return std::string(TierName(ActiveTier())) + " " + names[static_cast<int>(shape.format)] + " " + std::to_string(shape.rows) + " x " +
         std::to_string(shape.cols) + " block " + std::to_string(shape.block_rows) + " x " + std::to_string(shape.block_cols) + " scales " +
         std::to_string(shape.scale_min) + ".." + std::to_string(shape.scale_max);
}

struct Variant {
  Tier tier;
  MatMulDot dot = MatMulDot::kFma;
};

bool Runs(const Variant& variant) {
  return variant.tier <= BestTier() && (variant.dot == MatMulDot::kFma || variant.tier == Tier::kAvx512);
}

// Runs every test on every tier of this CPU, and with both dots of the AVX-512 tier.
class MatMulTest : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (!Runs(GetParam())) GTEST_SKIP() << "this CPU does not run " << TierName(GetParam().tier);
    SetActiveTier(GetParam().tier);
    SetMatMulDot(GetParam().dot);
  }
  void TearDown() override {
    SetActiveTier(BestTier());
    SetMatMulDot(default_dot_);
  }

 private:
  MatMulDot default_dot_ = ActiveMatMulDot();
};
INSTANTIATE_TEST_SUITE_P(Tiers, MatMulTest,
                         ::testing::Values(Variant{Tier::kScalar}, Variant{Tier::kAvx2}, Variant{Tier::kAvx512},
                                           Variant{Tier::kAvx512, MatMulDot::kBf16}),
                         [](const auto& info) {
                           return std::string(TierName(info.param.tier)) + (info.param.dot == MatMulDot::kBf16 ? "_bf16_dot" : "");
                         });

template <class A, class O>
void ExpectNearReference(const QuantView& w, int64_t num_rows, float factor, const std::string& name) {
  const std::vector<A> x = RandomActivations<A>(num_rows * w.cols, static_cast<uint64_t>(w.cols + num_rows), factor);
  const View<const A> view = MakeView(x.data(), num_rows, w.cols);
  const std::vector<O> out = MultiplyRows<A, O>(view, nullptr, num_rows, w);
  const MatMulRef ref = MatMulReference(view, w);
  for (size_t i = 0; i < out.size(); ++i) {
    const double tolerance = MatMulTolerance(w.cols, ref.magnitudes[i], ref.values[i], std::is_same_v<O, bf16>);
    ASSERT_NEAR(ToFloat(out[i]), ref.values[i], tolerance) << name << ", " << num_rows << " rows, output " << i;
  }
}

void ExpectAllTypesNearReference(const QuantView& w, int64_t num_rows, float factor, const std::string& name) {
  ExpectNearReference<bf16, float>(w, num_rows, factor, name + " bf16 -> float");
  ExpectNearReference<bf16, bf16>(w, num_rows, factor, name + " bf16 -> bf16");
  ExpectNearReference<float, float>(w, num_rows, factor, name + " float -> float");
  ExpectNearReference<float, bf16>(w, num_rows, factor, name + " float -> bf16");
}

TEST_P(MatMulTest, AgreesWithReferenceAtEveryLength) {
  for (const Format format : kFormats)
    for (const int64_t cols : {1, 2, 7, 31, 32, 33, 64, 96, 127, 128, 129, 160, 256, 500, 640, 2048, 2200})
      for (const int64_t num_rows : {1, 2, 3, 7}) {
        if (kSanitized && cols > 640) continue;
        const MatrixShape shape = {format, num_rows == 2 ? 37 : 5, cols};
        ExpectAllTypesNearReference(RandomMatrix(shape, 1).view, num_rows, 1.0f, Name(shape));
      }
}

TEST_P(MatMulTest, TakesEveryScaleBlock) {
  for (const Format format : {Format::kE4M3, Format::kE2M1})
    for (const int32_t block_rows : {1, 3, 32, 128})
      for (const int32_t block_cols : {32, 64, 96, 128, 256, 1000})
        for (const int64_t cols : {32, 160, 288, 512}) {
          const MatrixShape shape = {format, 40, cols, block_rows, block_cols};
          const Matrix matrix = RandomMatrix(shape, 2);
          CheckMatMulWeights(matrix.view);
          ExpectNearReference<bf16, float>(matrix.view, 2, 1.0f, Name(shape));
          // A view that starts inside a block of scales.
          ExpectNearReference<bf16, float>(matrix.view.Rows(5, 34), 5, 1.0f, Name(shape) + " rows 5..38");
        }
}

TEST_P(MatMulTest, TakesEveryScaleByte) {
  for (const Format format : {Format::kE4M3, Format::kE2M1})
    for (const int byte : {0, 1, 2, 60, 127, 200, 253, 254})
      for (const int64_t num_rows : {1, 5}) {
        const MatrixShape shape = {format, 5, 300, 1, 32, byte, byte};
        // 2^-20: 448 * 300 * 2^127 * 2^-20 is still finite.
        ExpectAllTypesNearReference(RandomMatrix(shape, 3).view, num_rows, byte > 127 ? 0x1p-20f : 1.0f, Name(shape));
      }
  const MatrixShape mixed = {Format::kE2M1, 9, 512, 1, 32, 0, 254};
  ExpectAllTypesNearReference(RandomMatrix(mixed, 4).view, 4, 0x1p-20f, Name(mixed));
}

TEST_P(MatMulTest, DecodesEveryCodeExactly) {
  // One row with every code, an activation that picks one column: the output is the code's value, without any error.
  for (const Format format : {Format::kE4M3, Format::kE2M1}) {
    Matrix matrix = RandomMatrix({format, 1, 256, 1, 256, 127, 127}, 5);
    for (size_t i = 1; i < matrix.payload.size(); ++i)
      matrix.payload[i] = static_cast<uint8_t>(format == Format::kE4M3 ? i - 1 : (i - 1) % 256);
    for (int code = 0; code < 256; ++code) {
      std::vector<bf16> x(256 * 5, bf16{0});
      for (int m = 0; m < 5; ++m) x[m * 256 + code] = ToBf16(1.0f);
      const View<const bf16> view = MakeView(static_cast<const bf16*>(x.data()), 5, 256);
      const double expected = WeightRef(matrix.view, 0, code);
      if (std::isnan(expected)) continue;
      const auto one = MultiplyRows<bf16, float>(view, nullptr, 1, matrix.view);
      const auto five = MultiplyRows<bf16, float>(view, nullptr, 5, matrix.view);
      EXPECT_EQ(one[0], expected) << code;
      EXPECT_EQ(five[4], expected) << code;
    }
  }
}

template <class A>
void ExpectSameBitsForEveryM(const MatrixShape& shape) {
  constexpr int64_t kRows = 40;
  const Matrix matrix = RandomMatrix(shape, 6);
  const std::vector<A> x = RandomActivations<A>(kRows * shape.cols, 7);
  const View<const A> view = MakeView(x.data(), kRows, shape.cols);
  const AlignedBuffer packed(PackedBytes<A>(shape.format, kRows, shape.cols));
  const AlignedBuffer scratch(MatMulScratchBytes(shape.cols));
  std::vector<float> alone(kRows * shape.rows);
  for (int64_t m = 0; m < kRows; ++m) {
    PackActivations<A>(view.Rows(m, 1), nullptr, 1, shape.format, packed.get());
    MatMulPacked<A, float>(packed.get(), 1, matrix.view, MakeView(alone.data() + m * shape.rows, 1, shape.rows), scratch.get());
  }
  PackActivations<A>(view, nullptr, kRows, shape.format, packed.get());
  for (int64_t num_rows = 1; num_rows <= kRows; ++num_rows) {
    std::vector<float> together(num_rows * shape.rows);
    MatMulPacked<A, float>(packed.get(), num_rows, matrix.view, MakeView(together.data(), num_rows, shape.rows), scratch.get());
    ASSERT_EQ(std::memcmp(alone.data(), together.data(), together.size() * sizeof(float)), 0) << Name(shape) << ", " << num_rows << " rows";
  }
}

TEST_P(MatMulTest, GemvAndGemmGiveEqualBits) {
  for (const Format format : kFormats)
    for (const int64_t cols : {160, 2048, 2304, 4096, 5120, 6144, 8192}) {
      if ((GetParam().tier == Tier::kScalar || kSanitized) && cols > 2304) continue;  // its loops are those of the other tiers
      ExpectSameBitsForEveryM<bf16>({format, 6, cols});
      if (cols <= 2304) ExpectSameBitsForEveryM<float>({format, 3, cols, 32, 128});
    }
}

TEST(MatMulDotTest, BothDotsGiveEqualBits) {
  if (!Runs({Tier::kAvx512, MatMulDot::kBf16})) GTEST_SKIP() << "this CPU has no bf16 dot";
  const MatMulDot default_dot = ActiveMatMulDot();
  for (const Format format : {Format::kBF16, Format::kE4M3, Format::kE2M1})
    for (const int64_t num_rows : {1, 2, 3, 8})
      for (const int64_t cols : {33, 128, 1000, 2048})
        for (const float factor : {1.0f, 0x1p-95f, 0x1p-120f, 0x1p90f}) {
          if (format == Format::kBF16 && factor < 1.0f) continue;  // products below 2^-126 may differ there
          const Matrix matrix = RandomMatrix({format, 21, cols}, 20);
          const std::vector<bf16> x = RandomActivations<bf16>(num_rows * cols, 21, factor);
          const View<const bf16> view = MakeView(x.data(), num_rows, cols);
          SetMatMulDot(MatMulDot::kFma);
          const auto fma = MultiplyRows<bf16, float>(view, nullptr, num_rows, matrix.view);
          SetMatMulDot(MatMulDot::kBf16);
          const auto dot = MultiplyRows<bf16, float>(view, nullptr, num_rows, matrix.view);
          ASSERT_EQ(std::memcmp(fma.data(), dot.data(), fma.size() * sizeof(float)), 0)
              << static_cast<int>(format) << " " << num_rows << " x " << cols << " factor " << factor;
        }
  SetMatMulDot(default_dot);
}

TEST_P(MatMulTest, RowCutsChangeNoBit) {
  for (const Format format : kFormats)
    for (const int64_t num_rows : {1, 3, 4, 101}) {
      const MatrixShape shape = {format, 77, 672, 32, 32};
      const Matrix matrix = RandomMatrix(shape, 8);
      const std::vector<bf16> x = RandomActivations<bf16>(num_rows * shape.cols, 9);
      const View<const bf16> view = MakeView(x.data(), num_rows, shape.cols);
      const AlignedBuffer packed(PackedBytes<bf16>(format, num_rows, shape.cols));
      const AlignedBuffer scratch(MatMulScratchBytes(shape.cols));
      PackActivations<bf16>(view, nullptr, num_rows, format, packed.get());
      std::vector<float> whole(num_rows * shape.rows), cut(num_rows * shape.rows);
      MatMulPacked<bf16, float>(packed.get(), num_rows, matrix.view, MakeView(whole.data(), num_rows, shape.rows), scratch.get());
      const View<float> out = MakeView(cut.data(), num_rows, shape.rows);
      const int64_t cuts[] = {0, 1, 3, 20, 37, 70, 77};
      for (int i = 0; i + 1 < 7; ++i)
        MatMulPacked<bf16, float>(packed.get(), num_rows, matrix.view.Rows(cuts[i], cuts[i + 1] - cuts[i]),
                                  out.Columns(cuts[i], cuts[i + 1] - cuts[i]), scratch.get());
      EXPECT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(float)), 0) << Name(shape) << ", " << num_rows << " rows";
    }
}

TEST_P(MatMulTest, GathersRowsByIndex) {
  const MatrixShape shape = {Format::kE4M3, 9, 200, 1, 32};
  const Matrix matrix = RandomMatrix(shape, 10);
  const std::vector<bf16> x = RandomActivations<bf16>(12 * 210, 11);
  const View<const bf16> view = {x.data(), 12, 200, 210};
  const std::vector<int32_t> rows = {11, 0, 3, 3, 7};
  const auto gathered = MultiplyRows<bf16, float>(view, rows.data(), 5, matrix.view);
  const auto all = MultiplyRows<bf16, float>(view, nullptr, 12, matrix.view);
  for (int m = 0; m < 5; ++m) EXPECT_EQ(std::memcmp(gathered.data() + m * 9, all.data() + rows[m] * 9, 9 * sizeof(float)), 0) << m;
}

TEST_P(MatMulTest, WritesOnlyItsOutputs) {
  for (const int64_t num_rows : {1, 5, 13}) {
    const Matrix matrix = RandomMatrix({Format::kE2M1, 7, 128}, 12);
    const std::vector<float> x = RandomActivations<float>(num_rows * 128, 13);
    const AlignedBuffer packed(PackedBytes<float>(Format::kE2M1, num_rows, 128));
    const AlignedBuffer scratch(MatMulScratchBytes(128));
    PackActivations<float>(MakeView(x.data(), num_rows, 128), nullptr, num_rows, Format::kE2M1, packed.get());
    std::vector<float> out(num_rows * 16, 77.0f);
    MatMulPacked<float, float>(packed.get(), num_rows, matrix.view, {out.data() + 4, num_rows, 7, 16}, scratch.get());
    for (size_t i = 0; i < out.size(); ++i) {
      if (i % 16 < 4 || i % 16 >= 11) {
        ASSERT_EQ(out[i], 77.0f) << i;
      }
    }
  }
}

// Memory whose last byte is the last one that may be touched.
class GuardedBytes {
 public:
  explicit GuardedBytes(const std::vector<uint8_t>& bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mapped_bytes_ = (bytes.size() + page - 1) / page * page + page;
    base_ = static_cast<uint8_t*>(mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + mapped_bytes_ - page, page, PROT_NONE);
    data_ = base_ + mapped_bytes_ - page - bytes.size();
    std::memcpy(data_, bytes.data(), bytes.size());
  }
  ~GuardedBytes() { munmap(base_, mapped_bytes_); }
  const uint8_t* data() const { return data_; }

 private:
  uint8_t* base_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t mapped_bytes_ = 0;
};

TEST_P(MatMulTest, ReadsNothingBeyondTheMatrix) {
  for (const Format format : kFormats)
    for (const int64_t cols : {1, 31, 32, 64, 127, 128, 160, 250, 384})
      for (const int64_t num_rows : {1, 2, 6})
        for (const int32_t block_cols : {32, 128}) {
          const MatrixShape shape = {format, 3, cols, 1, block_cols};
          Matrix matrix = RandomMatrix(shape, 14);
          const GuardedBytes payload(matrix.payload), scales(matrix.scales.empty() ? std::vector<uint8_t>(1) : matrix.scales);
          QuantView guarded = matrix.view;
          guarded.payload = payload.data() + 1;
          if (guarded.scales != nullptr) guarded.scales = scales.data();
          const std::vector<bf16> x = RandomActivations<bf16>(num_rows * cols, 15);
          const View<const bf16> view = MakeView(x.data(), num_rows, cols);
          const auto expected = MultiplyRows<bf16, float>(view, nullptr, num_rows, matrix.view);
          const auto actual = MultiplyRows<bf16, float>(view, nullptr, num_rows, guarded);
          EXPECT_EQ(std::memcmp(expected.data(), actual.data(), expected.size() * sizeof(float)), 0) << Name(shape);
        }
}

TEST(MatMulCheckTest, RefusesViewsTheKernelsDoNotTake) {
  Matrix matrix = RandomMatrix({Format::kE2M1, 4, 128}, 16);
  CheckMatMulWeights(matrix.view);
  QuantView odd_block = matrix.view;
  odd_block.block_cols = 48;
  EXPECT_DEATH(CheckMatMulWeights(odd_block), "scale block 1 x 48");
  QuantView no_scales = matrix.view;
  no_scales.scales = nullptr;
  EXPECT_DEATH(CheckMatMulWeights(no_scales), "without scales");
}

}  // namespace
}  // namespace tessera::testing
