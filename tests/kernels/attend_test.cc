#include "kernels/attend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reference/attend_ref.h"
#include "support/each_tier.h"

namespace tessera {
namespace {

using testing::ForEachTier;
using testing::kRounding;
using testing::RandomValues;

template <class T>
struct Problem {
  Problem(int64_t num_heads, int64_t num_entries, int64_t head_dim, int64_t padding = 0)
      : stride(head_dim + padding),
        q(RandomValues<T>(1, num_heads * stride, -2, 2)),
        kv(RandomValues<T>(2, num_entries * stride, -2, 2)),
        sink(RandomValues<float>(3, num_heads, -1, 3)),
        num_heads(num_heads),
        num_entries(num_entries),
        head_dim(head_dim) {}

  View<const T> Q() const { return {q.data(), num_heads, head_dim, stride}; }
  View<const T> Kv() const { return {kv.data(), num_entries, head_dim, stride}; }
  float Scale() const { return 1 / std::sqrt(static_cast<float>(head_dim)); }

  // Heads [first, first + count) in one call, into the same places of `out`.
  void Run(int64_t first, int64_t count, std::vector<T>* out) const {
    std::vector<float> scratch(static_cast<size_t>(AttendScratchFloats(num_entries)));
    Attend<T>({Q().Rows(first, count), Kv(), sink.data() + first, Scale(), round_probabilities,
               View<T>{out->data(), num_heads, head_dim, stride}.Rows(first, count), scratch.data()});
  }
  std::vector<T> RunAll() const {
    std::vector<T> out(q.size());
    Run(0, num_heads, &out);
    return out;
  }

  int64_t stride;
  std::vector<T> q, kv;
  std::vector<float> sink;
  int64_t num_heads, num_entries, head_dim;
  bool round_probabilities = false;
};

template <class T>
void ExpectTwin(const Problem<T>& problem) {
  const std::vector<T> out = problem.RunAll();
  for (int64_t h = 0; h < problem.num_heads; ++h) {
    const auto expected = reference::Attend<T>(problem.Q().Row(h), problem.Kv(), problem.sink[static_cast<size_t>(h)], problem.Scale(),
                                               problem.round_probabilities);
    for (int64_t c = 0; c < problem.head_dim; ++c) {
      const double value = ToFloat(out[static_cast<size_t>(h * problem.stride + c)]);
      const double bound = expected.error[c] + kRounding<T> * (std::fabs(expected.out[c]) + expected.error[c]);
      ASSERT_LE(std::fabs(value - expected.out[c]), bound) << "heads " << problem.num_heads << " entries " << problem.num_entries
                                                           << " head_dim " << problem.head_dim << " head " << h << " column " << c;
    }
  }
}

template <class T>
class AttendTest : public ::testing::Test {};
using ActivationTypes = ::testing::Types<bf16, float>;
TYPED_TEST_SUITE(AttendTest, ActivationTypes);

TYPED_TEST(AttendTest, MatchesTwinOnEveryTail) {
  ForEachTier([] {
    for (int64_t head_dim = 1; head_dim <= 67; ++head_dim) ExpectTwin(Problem<TypeParam>(3, 7, head_dim, head_dim % 4));
    for (int64_t head_dim : {127, 128, 129, 255, 300, 512}) ExpectTwin(Problem<TypeParam>(5, 30, head_dim));
    for (int64_t num_entries = 1; num_entries <= 40; ++num_entries) ExpectTwin(Problem<TypeParam>(17, num_entries, 32));
    for (int64_t num_heads = 1; num_heads <= 70; ++num_heads) ExpectTwin(Problem<TypeParam>(num_heads, 13, 34));
    ExpectTwin(Problem<TypeParam>(3, 800, 600));  // more than one block of entries and chunk of columns
    for (int64_t num_entries : {63, 64, 65, 128, 640, 3001}) ExpectTwin(Problem<TypeParam>(4, num_entries, 64));
  });
}

TYPED_TEST(AttendTest, RoundsProbabilitiesOnlyInTheNumerator) {
  ForEachTier([] {
    for (int64_t num_entries : {1, 2, 65, 640}) {
      Problem<TypeParam> problem(3, num_entries, 48);
      problem.round_probabilities = true;
      ExpectTwin(problem);
    }
  });
}

TYPED_TEST(AttendTest, AHeadDoesNotDependOnItsNeighbours) {
  ForEachTier([] {
    for (int64_t num_heads : {4, 40, 67}) {
      const Problem<TypeParam> problem(num_heads, 75, 150);
      const std::vector<TypeParam> whole = problem.RunAll();
      const size_t num_bytes = whole.size() * sizeof(TypeParam);
      for (int64_t cut = 1; cut < num_heads; ++cut) {
        std::vector<TypeParam> parts(whole.size());
        problem.Run(0, cut, &parts);
        problem.Run(cut, num_heads - cut, &parts);
        ASSERT_EQ(std::memcmp(parts.data(), whole.data(), num_bytes), 0) << num_heads << " heads cut at " << cut;
      }
      std::vector<TypeParam> single(whole.size());
      for (int64_t h = 0; h < num_heads; ++h) problem.Run(h, 1, &single);
      ASSERT_EQ(std::memcmp(single.data(), whole.data(), num_bytes), 0) << num_heads << " heads one by one";
    }
  });
}

TYPED_TEST(AttendTest, OneEntryWithoutASinkIsCopied) {
  ForEachTier([] {
    for (int64_t head_dim : {1, 31, 32, 64, 129}) {
      Problem<TypeParam> problem(2, 1, head_dim);
      problem.sink.assign(2, -std::numeric_limits<float>::infinity());
      const std::vector<TypeParam> out = problem.RunAll();
      for (int64_t h = 0; h < 2; ++h)
        ASSERT_EQ(std::memcmp(out.data() + h * head_dim, problem.kv.data(), static_cast<size_t>(head_dim) * sizeof(TypeParam)), 0);
    }
  });
}

TYPED_TEST(AttendTest, AnOverwhelmingSinkLeavesZero) {
  ForEachTier([] {
    Problem<TypeParam> problem(3, 20, 40);
    problem.sink.assign(3, 1e4f);
    for (TypeParam value : problem.RunAll()) ASSERT_EQ(ToFloat(value), 0.0f);
  });
}

TYPED_TEST(AttendTest, TheOutputMayBeTheQueriesAndPaddingIsKept) {
  ForEachTier([] {
    Problem<TypeParam> problem(35, 50, 70, 3);
    const std::vector<TypeParam> apart = problem.RunAll();
    const std::vector<TypeParam> before = problem.q;
    std::vector<TypeParam> inside = problem.q;
    problem.q.swap(inside);
    std::vector<float> scratch(static_cast<size_t>(AttendScratchFloats(50)));
    Attend<TypeParam>({problem.Q(), problem.Kv(), problem.sink.data(), problem.Scale(), false,
                       View<TypeParam>{problem.q.data(), 35, 70, 73}, scratch.data()});
    for (int64_t h = 0; h < 35; ++h) {
      ASSERT_EQ(std::memcmp(problem.q.data() + h * 73, apart.data() + h * 73, 70 * sizeof(TypeParam)), 0);
      ASSERT_EQ(std::memcmp(problem.q.data() + h * 73 + 70, before.data() + h * 73 + 70, 3 * sizeof(TypeParam)), 0);
    }
  });
}

}  // namespace
}  // namespace tessera
