#include "model/linears.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "support/kernel_inputs.h"
#include "support/op_inputs.h"

namespace tessera {
namespace {

using testing::Matrix;
using testing::MatrixShape;
using testing::MultiplyRows;
using testing::RandomActivations;
using testing::RandomMatrix;
using testing::RunOnWorkers;

// Bytes that no product of these inputs is, in either activation type: -2.6e36.
constexpr uint8_t kUntouched = 0xfb;

struct LinearSpec {
  MatrixShape shape;
  int input = 0;           // index of the input it reads
  bool out_float = false;  // the result in fp32 whatever the activation type
};

// A set of linears over a few inputs. Inputs and results are columns of wider rows, as in the engine's grouped projections.
template <class T>
class Problem {
 public:
  Problem(std::vector<LinearSpec> specs, int32_t max_rows) : specs_(std::move(specs)), max_rows_(max_rows) {
    for (size_t i = 0; i < specs_.size(); ++i) {
      const LinearSpec& spec = specs_[i];
      weights_.push_back(std::make_unique<Matrix>(RandomMatrix(spec.shape, 10 + i)));
      const size_t input = static_cast<size_t>(spec.input);
      if (inputs_.size() <= input) inputs_.resize(input + 1);
      if (inputs_[input].empty()) inputs_[input] = RandomActivations<T>(max_rows * Stride(spec.shape.cols), 100 + input);
      const int64_t out_stride = Stride(spec.shape.rows);
      outputs_.emplace_back(static_cast<size_t>(max_rows * out_stride) * (spec.out_float ? sizeof(float) : sizeof(T)));
    }
  }

  // Only these rows from now on, as many of them as Check says.
  void List(std::vector<int32_t> rows) { list_ = std::move(rows); }

  // Every output element has the bits of a direct product, and exactly one worker wrote it; nothing else was written.
  void Check(int32_t num_rows, int num_workers) {
    SCOPED_TRACE(::testing::Message() << num_rows << " of " << max_rows_ << " rows, " << num_workers << " workers");
    Arena activations("activations", 1 << 12), arguments("arguments", 1 << 20);
    PlanBuilder builder(activations, arguments, max_rows_, num_workers);
    EmitLinears<T>(builder, kRegionQueryKey, max_rows_, Linears());
    const Plan plan = builder.Finish();
    ASSERT_EQ(plan.num_ops(), 1u);
    EXPECT_EQ(plan.ops()[0].region, kRegionQueryKey);
    num_rows_ = num_rows;
    std::vector<std::vector<uint8_t>> sums;  // what all workers wrote together
    for (std::vector<uint8_t>& output : outputs_) sums.emplace_back(output.size(), kUntouched);
    RunOnWorkers(num_workers, static_cast<int64_t>(plan.scratch_bytes()), [&](const WorkerContext& worker) {
      for (std::vector<uint8_t>& output : outputs_) std::fill(output.begin(), output.end(), kUntouched);
      plan.ops()[0].function(plan.ops()[0].arguments, worker);
      for (size_t i = 0; i < outputs_.size(); ++i) Merge(i, sums[i]);
    });
    for (size_t i = 0; i < outputs_.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "linear " << i);
      if (specs_[i].out_float) {
        Compare<float>(i, num_rows, sums[i]);
      } else {
        Compare<T>(i, num_rows, sums[i]);
      }
    }
  }

 private:
  static int64_t Stride(int64_t cols) { return cols + 3; }
  View<const T> Input(size_t i) const {
    const std::vector<T>& input = inputs_[static_cast<size_t>(specs_[i].input)];
    const int64_t cols = specs_[i].shape.cols;
    return View<const T>{input.data(), max_rows_, Stride(cols), Stride(cols)}.Columns(1, cols);
  }
  template <class O>
  View<O> Output(size_t i, std::vector<uint8_t>& bytes) const {
    const int64_t rows = specs_[i].shape.rows;
    return View<O>{reinterpret_cast<O*>(bytes.data()), max_rows_, Stride(rows), Stride(rows)}.Columns(2, rows);
  }
  std::vector<Linear<T>> Linears() {
    std::vector<Linear<T>> linears;
    for (size_t i = 0; i < specs_.size(); ++i) {
      Linear<T> linear{{list_.empty() ? nullptr : list_.data(), &num_rows_}, weights_[i]->view, Input(i), {}, {}};
      if (specs_[i].out_float) {
        linear.out_float = Output<float>(i, outputs_[i]);
      } else {
        linear.out = Output<T>(i, outputs_[i]);
      }
      linears.push_back(linear);
    }
    return linears;
  }
  // Adds what one worker wrote; an element that another has written already is an error.
  void Merge(size_t i, std::vector<uint8_t>& sum) const {
    const size_t size = specs_[i].out_float ? sizeof(float) : sizeof(T);
    const std::vector<uint8_t> untouched(size, kUntouched);
    for (size_t at = 0; at < sum.size(); at += size) {
      if (std::memcmp(outputs_[i].data() + at, untouched.data(), size) == 0) continue;
      ASSERT_EQ(std::memcmp(sum.data() + at, untouched.data(), size), 0) << "element " << at / size << " was computed twice";
      std::memcpy(sum.data() + at, outputs_[i].data() + at, size);
    }
  }
  template <class O>
  void Compare(size_t i, int32_t num_rows, const std::vector<uint8_t>& sum) const {
    std::vector<uint8_t> expected(sum.size(), kUntouched);
    const View<O> out = Output<O>(i, expected);
    if (num_rows > 0) {
      const std::vector<O> direct = MultiplyRows<T, O>(Input(i), list_.empty() ? nullptr : list_.data(), num_rows, weights_[i]->view);
      for (int64_t row = 0; row < num_rows; ++row)
        std::memcpy(out.Row(list_.empty() ? row : list_[static_cast<size_t>(row)]), direct.data() + row * out.cols,
                    static_cast<size_t>(out.cols) * sizeof(O));
    }
    for (size_t at = 0; at < sum.size(); ++at)
      ASSERT_EQ(sum[at], expected[at]) << "element " << at / sizeof(O) << " of rows of " << Stride(out.cols);
  }

  std::vector<LinearSpec> specs_;
  int32_t max_rows_, num_rows_ = 0;
  std::vector<int32_t> list_;
  std::vector<std::unique_ptr<Matrix>> weights_;
  std::vector<std::vector<T>> inputs_;
  std::vector<std::vector<uint8_t>> outputs_;
};

MatrixShape E4m3(int64_t rows, int64_t cols) { return {Format::kE4M3, rows, cols, 32, 32}; }
MatrixShape E2m1(int64_t rows, int64_t cols) { return {Format::kE2M1, rows, cols, 1, 32}; }
MatrixShape Bf16(int64_t rows, int64_t cols) { return {Format::kBF16, rows, cols}; }
MatrixShape F32(int64_t rows, int64_t cols) { return {Format::kF32, rows, cols}; }

// Sets as the forward pass emits them, and worse ones.
std::vector<std::vector<LinearSpec>> Sets() {
  return {
      {{E4m3(37, 64)}},
      {{Bf16(1, 40)}},
      // One input: quantised ones first, then the compressor's in fp32 and a bf16 one, which share packed activations by format.
      {{E4m3(40, 96)}, {E4m3(24, 96)}, {Bf16(16, 96), 0, true}, {Bf16(16, 96), 0, true}, {Bf16(3, 96)}},
      {{F32(24, 70), 0, true}},
      // Inputs of different widths, formats in turn.
      {{E2m1(33, 128), 0}, {E4m3(7, 32), 1}, {E2m1(5, 128), 0}, {F32(9, 32), 1, true}, {Bf16(21, 50), 2}},
      // Many small ones and one that outweighs them.
      {{E4m3(1, 32), 0}, {E4m3(2, 32), 1}, {E4m3(3, 32), 2}, {E4m3(1, 32), 2}, {E4m3(300, 32), 0}, {E4m3(5, 32), 1}},
      {{Bf16(260, 33)}, {Bf16(1, 33)}},
  };
}

template <class T>
class LinearsTest : public ::testing::Test {};
using ActivationTypes = ::testing::Types<bf16, float>;
TYPED_TEST_SUITE(LinearsTest, ActivationTypes);

TYPED_TEST(LinearsTest, EveryRowIsComputedByOneWorkerWithTheBitsOfADirectProduct) {
  for (const auto& set : Sets()) {
    Problem<TypeParam> problem(set, 40);
    for (int workers = 1; workers <= 9; ++workers)
      for (const int32_t num_rows : {0, 1, 2, 40}) problem.Check(num_rows, workers);
  }
}

TYPED_TEST(LinearsTest, ManyRowsGoThroughInBlocks) {
  // Activations are packed for 512 rows at a time, for F32 weights 32.
  Problem<TypeParam> problem({{E4m3(6, 32)}, {E2m1(4, 32), 1}, {F32(3, 32), 1, true}, {Bf16(2, 32), 1}}, 1100);
  for (const int workers : {1, 3})
    for (const int32_t num_rows : {31, 32, 33, 511, 512, 513, 1024, 1025, 1100}) problem.Check(num_rows, workers);
}

TYPED_TEST(LinearsTest, ListedRowsAreReadAndWrittenWhereTheyLie) {
  std::vector<int32_t> odd;
  for (int32_t row = 1; row < 1100; row += 2) odd.push_back(row);
  Problem<TypeParam> problem({{E4m3(6, 32)}, {E2m1(4, 32), 1}, {F32(3, 32), 1, true}, {Bf16(2, 32), 1}}, 1100);
  problem.List(odd);
  for (const int workers : {1, 3})
    for (const int32_t num_rows : {0, 1, 2, 31, 33, 513, 550}) problem.Check(num_rows, workers);
}

TEST(LinearsDeathTest, RefusesAnInputOfAnotherWidth) {
  const Matrix w = RandomMatrix(E4m3(8, 64), 1);
  const std::vector<bf16> x(32);
  std::vector<bf16> y(8);
  Arena activations("activations", 1 << 12), arguments("arguments", 1 << 12);
  PlanBuilder builder(activations, arguments, 1, 1);
  const int32_t num_rows = 1;
  EXPECT_DEATH(
      EmitLinears<bf16>(builder, kRegionHead, 1, {{{nullptr, &num_rows}, w.view, MakeView(x.data(), 1, 32), MakeView(y.data(), 1, 8), {}}}),
      "input of 32 columns for a weight of 64");
}

}  // namespace
}  // namespace tessera
