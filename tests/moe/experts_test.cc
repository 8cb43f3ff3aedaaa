#include "moe/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "reference/experts_ref.h"
#include "support/kernel_inputs.h"
#include "support/op_inputs.h"

namespace tessera {
namespace {

using testing::ForEachTier;
using testing::kRounding;
using testing::Matrix;
using testing::RandomActivations;
using testing::RandomMatrix;
using testing::RunOnWorkers;
using testing::SameBits;
using testing::StepRows;

constexpr int kExperts = 5, kPerRow = 3;
constexpr float kLimit = 2;

struct Sizes {
  int64_t hidden, intermediate;
};

// Routed experts of one format and a shared one in E4M3, as released checkpoints have them, with random routing of random rows.
template <class T>
class Layer {
 public:
  Layer(Sizes sizes, Format routed, int32_t num_rows, int32_t block = 32) : sizes_(sizes), num_rows_(num_rows) {
    // Scales around 2^-7 bring the products near the limit, so that both sides of the clamps are met.
    const auto add = [&](Format format, int64_t rows, int64_t cols) {
      const bool packed = format == Format::kE2M1;
      const int middle = packed ? 123 : 117;
      matrices_.push_back(std::make_unique<Matrix>(
          RandomMatrix({format, rows, cols, packed ? 1 : block, packed ? 32 : block, middle - 1, middle + 1}, matrices_.size())));
      return matrices_.back()->view;
    };
    const auto expert = [&](Format format) {
      const QuantView w1 = add(format, sizes.intermediate, sizes.hidden), w3 = add(format, sizes.intermediate, sizes.hidden);
      return ExpertWeights{w1, w3, add(format, sizes.hidden, sizes.intermediate)};
    };
    for (int i = 0; i < kExperts; ++i) experts_.push_back(expert(routed));
    shared_ = expert(Format::kE4M3);
    x_ = RandomActivations<T>(num_rows * sizes.hidden, 77);
    std::mt19937_64 random(5);
    for (int32_t row = 0; row < num_rows; ++row) {
      int32_t first = static_cast<int32_t>(random() % 3);  // 0 1 2, 1 2 3, ... with an empty place now and then
      for (int i = 0; i < kPerRow; ++i) {
        ids_.push_back(row % 4 == 3 && i == row % 3 ? -1 : first + i);
        weights_.push_back(ids_.back() < 0 ? 0 : 0.1f + static_cast<float>(random() % 1000) / 1000);
      }
    }
  }

  // Combined results [count, hidden] of rows [first, first + count) as a step of their own.
  std::vector<T> Run(int32_t first, int32_t count, int num_workers) const {
    StepRows rows(count);
    rows.Add(0, 0, count);
    Arena arena("experts", size_t{1} << 16);
    Assignment assignment = Assignment::Allocate(arena, count, kExperts, kPerRow);
    assignment.Sort(rows.step().AllRows(), ids_.data() + first * kPerRow, weights_.data() + first * kPerRow);
    std::vector<T> hidden(static_cast<size_t>(count * kPerRow * sizes_.intermediate)),
        out(static_cast<size_t>(count * kPerRow * sizes_.hidden));
    std::vector<T> shared_hidden(static_cast<size_t>(count * sizes_.intermediate)), shared_out(static_cast<size_t>(count * sizes_.hidden));
    ExpertArguments<T> arguments;
    arguments.rows = rows.step().AllRows();
    arguments.assignment = &assignment;
    arguments.experts = experts_.data();
    arguments.shared_expert = &shared_;
    arguments.swiglu_limit = kLimit;
    arguments.x = MakeView<const T>(x_.data() + first * sizes_.hidden, count, sizes_.hidden);
    arguments.hidden = MakeView(hidden.data(), count * kPerRow, sizes_.intermediate);
    arguments.shared_hidden = MakeView(shared_hidden.data(), count, sizes_.intermediate);
    arguments.out = MakeView(out.data(), count * kPerRow, sizes_.hidden);
    arguments.shared_out = MakeView(shared_out.data(), count, sizes_.hidden);
    const int64_t scratch = ExpertScratchBytes<T>(count, sizes_.hidden, sizes_.intermediate);
    RunOnWorkers(num_workers, scratch, [&](const WorkerContext& worker) { ExpertsUp<T>(arguments, worker); });
    RunOnWorkers(num_workers, scratch, [&](const WorkerContext& worker) { ExpertsDown<T>(arguments, worker); });
    std::vector<T> y(static_cast<size_t>(count * sizes_.hidden));
    for (int64_t row = 0; row < count; ++row)
      for (int part = 0; part < num_workers; ++part) {
        const Range columns = PartOf(sizes_.hidden, part, num_workers, 8);
        CombineExperts<T>(arguments, row, columns, y.data() + row * sizes_.hidden + columns.begin);
      }
    return y;
  }

  // What a row must be, and by how much it may miss it. The sum of its results runs in fp32, kPerRow additions, then one rounding to T.
  reference::ExpertResult Twin(int32_t row) const {
    const View<const T> x = MakeView<const T>(x_.data() + row * sizes_.hidden, 1, sizes_.hidden);
    reference::ExpertResult sum = reference::RunExpert<T>(shared_, x, kLimit, 1, kRounding<T>);
    std::vector<double> magnitude;
    for (const double value : sum.out) magnitude.push_back(std::fabs(value));
    for (int i = 0; i < kPerRow; ++i) {
      const int32_t id = ids_[static_cast<size_t>(row * kPerRow + i)];
      if (id < 0) continue;
      const double weight = weights_[static_cast<size_t>(row * kPerRow + i)];
      const reference::ExpertResult one = reference::RunExpert<T>(experts_[static_cast<size_t>(id)], x, kLimit, weight, kRounding<T>);
      for (size_t c = 0; c < one.out.size(); ++c) {
        sum.out[c] += one.out[c];
        sum.error[c] += one.error[c];
        magnitude[c] += std::fabs(one.out[c]);
      }
    }
    for (size_t c = 0; c < sum.out.size(); ++c) {
      sum.error[c] += (kPerRow + 1) * 0x1p-24 * (magnitude[c] + sum.error[c]);
      sum.error[c] += kRounding<T> * (std::fabs(sum.out[c]) + sum.error[c]);
    }
    return sum;
  }

 private:
  Sizes sizes_;
  int32_t num_rows_;
  std::vector<std::unique_ptr<Matrix>> matrices_;
  std::vector<ExpertWeights> experts_;
  ExpertWeights shared_;
  std::vector<T> x_;
  std::vector<int32_t> ids_;
  std::vector<float> weights_;
};

template <class T>
class ExpertsTest : public ::testing::Test {};
using ActivationTypes = ::testing::Types<bf16, float>;
TYPED_TEST_SUITE(ExpertsTest, ActivationTypes);

constexpr Sizes kSizes = {96, 160};  // more than one block of rows of w1, tails in both products

TYPED_TEST(ExpertsTest, RoutedAndSharedResultsMatchTheTwin) {
  for (const Format routed : {Format::kE2M1, Format::kE4M3})
    for (const int32_t num_rows : {1, 2, 9}) {
      const Layer<TypeParam> layer(kSizes, routed, num_rows);
      std::vector<reference::ExpertResult> expected;
      double error = 0, value = 0;
      for (int32_t row = 0; row < num_rows; ++row) {
        expected.push_back(layer.Twin(row));
        for (const double e : expected.back().error) error += e;
        for (const double v : expected.back().out) value += std::fabs(v);
      }
      EXPECT_LT(error, value / 2) << "bounds so wide prove nothing";
      ForEachTier([&] {
        const std::vector<TypeParam> y = layer.Run(0, num_rows, 2);
        for (size_t i = 0; i < y.size(); ++i) {
          const auto& [out, bound] = expected[i / static_cast<size_t>(kSizes.hidden)];
          const size_t column = i % static_cast<size_t>(kSizes.hidden);
          ASSERT_LE(std::fabs(ToFloat(y[i]) - out[column]), bound[column]) << "element " << i;
        }
      });
    }
}

TYPED_TEST(ExpertsTest, WorkersChangeNoBit) {
  ForEachTier([] {
    for (const Format routed : {Format::kE2M1, Format::kE4M3}) {
      const Layer<TypeParam> layer(kSizes, routed, 9);
      const std::vector<TypeParam> whole = layer.Run(0, 9, 1), single = layer.Run(2, 1, 1);
      for (const int workers : {2, 3, 4, 7, 13}) {  // 96 rows are six grains: some workers of 7 and 13 have none
        EXPECT_TRUE(SameBits(layer.Run(0, 9, workers), whole)) << workers;
        EXPECT_TRUE(SameBits(layer.Run(2, 1, workers), single)) << workers;
      }
    }
  });
}

TYPED_TEST(ExpertsTest, ARowAloneHasTheBitsItHasAmongOthers) {
  ForEachTier([] {
    for (const Format routed : {Format::kE2M1, Format::kE4M3}) {
      const int32_t num_rows = 24;
      const Layer<TypeParam> layer(kSizes, routed, num_rows, 64);
      const std::vector<TypeParam> whole = layer.Run(0, num_rows, 2);
      for (const int32_t count : {1, 2, 5}) {
        std::vector<TypeParam> parts;
        for (int32_t first = 0; first < num_rows; first += count) {
          const std::vector<TypeParam> part = layer.Run(first, std::min(count, num_rows - first), 3);
          parts.insert(parts.end(), part.begin(), part.end());
        }
        EXPECT_TRUE(SameBits(parts, whole)) << "steps of " << count;
      }
    }
  });
}

}  // namespace
}  // namespace tessera
