#include "kernels/compress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "reference/compress_ref.h"
#include "support/each_tier.h"

namespace tessera {
namespace {

using testing::ForEachTier;
using testing::kRounding;
using testing::RandomValues;

struct Slots {
  Slots(int64_t num_slots, int64_t cols, double logit_range)
      : values(RandomValues<float>(1, num_slots * cols, -2, 2)),
        logits(RandomValues<float>(2, num_slots * cols, -logit_range, logit_range)) {
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      u.push_back(values.data() + slot * cols);
      g.push_back(logits.data() + slot * cols);
    }
  }
  std::vector<float> values, logits;
  std::vector<const float*> u, g;
};

template <class T>
void ExpectTwin(int64_t num_slots, int64_t cols, double logit_range) {
  const Slots slots(num_slots, cols, logit_range);
  std::vector<T> pooled(static_cast<size_t>(cols));
  PoolEntry(slots.u.data(), slots.g.data(), num_slots, cols, pooled.data());
  for (int64_t c = 0; c < cols; ++c) {
    std::vector<double> values, logits;
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      values.push_back(slots.u[slot][c]);
      logits.push_back(slots.g[slot][c]);
    }
    const reference::PooledValue expected = reference::Pool(values, logits);
    ASSERT_NEAR(ToFloat(pooled[c]), expected.value, expected.error + kRounding<T> * (std::fabs(expected.value) + expected.error))
        << num_slots << " slots, column " << c << " of " << cols;
  }
}

template <class T>
class CompressTest : public ::testing::Test {};
using ActivationTypes = ::testing::Types<bf16, float>;
TYPED_TEST_SUITE(CompressTest, ActivationTypes);

TYPED_TEST(CompressTest, MatchesTwinOnEveryTail) {
  ForEachTier([] {
    for (int64_t cols = 0; cols <= 35; ++cols) ExpectTwin<TypeParam>(4, cols, 3);
    for (int64_t num_slots : {1, 2, 3, 8, 128}) ExpectTwin<TypeParam>(num_slots, 50, 3);
    ExpectTwin<TypeParam>(128, 512, 3);
    ExpectTwin<TypeParam>(8, 50, 80);  // weights from 1 down to where they leave the fp32 range
  });
}

TYPED_TEST(CompressTest, OneSlotIsCopiedAndEqualLogitsAverage) {
  ForEachTier([] {
    const Slots one(1, 37, 5);
    std::vector<TypeParam> pooled(37);
    PoolEntry(one.u.data(), one.g.data(), 1, 37, pooled.data());
    for (size_t c = 0; c < pooled.size(); ++c) ASSERT_EQ(ToFloat(pooled[c]), ToFloat(FromFloat<TypeParam>(one.values[c])));
    const std::vector<float> low(37, 1.0f), high(37, 2.0f), logit(37, -6.5f);
    const float* u[] = {low.data(), high.data()};
    const float* g[] = {logit.data(), logit.data()};
    PoolEntry(u, g, 2, 37, pooled.data());
    for (TypeParam value : pooled) ASSERT_EQ(ToFloat(value), 1.5f);
  });
}

TYPED_TEST(CompressTest, AColumnDoesNotDependOnItsNeighbours) {
  ForEachTier([] {
    const Slots slots(8, 40, 4);
    std::vector<TypeParam> whole(40);
    PoolEntry(slots.u.data(), slots.g.data(), 8, 40, whole.data());
    for (int64_t cut = 0; cut <= 40; ++cut) {
      std::vector<const float*> u = slots.u, g = slots.g;
      std::vector<TypeParam> parts(40);
      PoolEntry(u.data(), g.data(), 8, cut, parts.data());
      for (size_t slot = 0; slot < 8; ++slot) u[slot] += cut, g[slot] += cut;
      PoolEntry(u.data(), g.data(), 8, 40 - cut, parts.data() + cut);
      ASSERT_EQ(std::memcmp(parts.data(), whole.data(), 40 * sizeof(TypeParam)), 0) << "cut at " << cut;
    }
  });
}

}  // namespace
}  // namespace tessera
