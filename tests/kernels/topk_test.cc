#include "kernels/topk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "reference/topk_ref.h"
#include "support/each_tier.h"

namespace tessera {
namespace {

using testing::ForEachTier;

// Scores with many ties and every special value; `num_values` different finite ones.
std::vector<float> TiedScores(uint64_t seed, size_t count, int num_values) {
  std::vector<float> scores(count);
  for (size_t i = 0; i < count; ++i) {
    const double draw = UniformDouble(seed, 1, i);
    const auto step = static_cast<float>(std::floor(UniformDouble(seed, 2, i) * num_values) - num_values / 2);
    scores[i] = draw < 0.02 ? NAN : draw < 0.04 ? -NAN : draw < 0.08 ? -INFINITY : draw < 0.09 ? INFINITY : draw < 0.2 ? -0.0f : step / 4;
  }
  return scores;
}

std::vector<int32_t> Indices(std::vector<ScoredIndex> list) {
  std::vector<int32_t> indices(list.size());
  SortedIndices(list.data(), static_cast<int64_t>(list.size()), indices.data());
  return indices;
}

// Feeds stretches [cuts[i], cuts[i + 1]) in the order given.
std::vector<ScoredIndex> KeepStretches(const std::vector<float>& scores, const std::vector<size_t>& cuts, const std::vector<size_t>& order,
                                       int64_t k) {
  std::vector<ScoredIndex> list;
  for (size_t stretch : order) {
    const size_t first = cuts[stretch], num_scores = cuts[stretch + 1] - first;
    const size_t count = list.size();
    list.resize(static_cast<size_t>(k) + num_scores);
    list.resize(static_cast<size_t>(KeepTopK(list.data(), static_cast<int64_t>(count), scores.data() + first,
                                             static_cast<int64_t>(num_scores), static_cast<int32_t>(first), k)));
  }
  return list;
}

void ExpectSameSet(const std::vector<float>& scores, const std::vector<ScoredIndex>& list, int64_t k) {
  const std::vector<ScoredIndex> expected = reference::TopK(scores, static_cast<size_t>(k));
  ASSERT_EQ(Indices(list), Indices(expected)) << scores.size() << " scores, k " << k;
  for (const ScoredIndex& kept : list) ASSERT_EQ(kept.score, scores[static_cast<size_t>(kept.index)]);
}

std::vector<size_t> InOrder(size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

TEST(TopKTest, OneStretchMatchesASortOnEveryLength) {
  ForEachTier([] {
    for (size_t num_scores = 0; num_scores <= 200; ++num_scores) {
      const std::vector<float> scores = TiedScores(num_scores, num_scores, 9);
      for (int64_t k : {0, 1, 2, 7, 64, 300}) ExpectSameSet(scores, KeepStretches(scores, {0, num_scores}, {0}, k), k);
    }
  });
}

TEST(TopKTest, ALongStretchIsCutBackManyTimes) {
  ForEachTier([] {
    for (int num_values : {3, 100, 1000000}) {
      for (int64_t k : {1, 100, 512, 5000}) {
        const std::vector<float> scores = TiedScores(7, 20000, num_values);
        ExpectSameSet(scores, KeepStretches(scores, {0, scores.size()}, {0}, k), k);
      }
    }
    std::vector<float> rising(30000);
    for (size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<float>(i);
    ExpectSameSet(rising, KeepStretches(rising, {0, rising.size()}, {0}, 512), 512);
  });
}

TEST(TopKTest, EveryWayOfCuttingKeepsTheSameSet) {
  ForEachTier([] {
    // All 2^9 ways of cutting ten scores, then random cuts of long ones, also fed backwards: ties must not depend on arrival.
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<float> scores = TiedScores(seed, 10, 3);
      for (unsigned pattern = 0; pattern < 512; ++pattern) {
        std::vector<size_t> cuts = {0};
        for (size_t i = 1; i < 10; ++i)
          if (pattern >> (i - 1) & 1) cuts.push_back(i);
        cuts.push_back(10);
        for (int64_t k : {1, 3, 10}) ExpectSameSet(scores, KeepStretches(scores, cuts, InOrder(cuts.size() - 1), k), k);
      }
    }
    for (uint64_t seed = 0; seed < 30; ++seed) {
      const std::vector<float> scores = TiedScores(seed, 3000, 20);
      std::vector<size_t> cuts = {0};
      while (cuts.back() < scores.size())
        cuts.push_back(std::min(scores.size(), cuts.back() + static_cast<size_t>(400 * UniformDouble(seed, 3, cuts.size()))));
      std::vector<size_t> order = InOrder(cuts.size() - 1);
      if (seed % 2 == 1) std::reverse(order.begin(), order.end());
      for (int64_t k : {1, 33, 512}) ExpectSameSet(scores, KeepStretches(scores, cuts, order, k), k);
    }
  });
}

TEST(TopKTest, ListsMergeAsIfTheirScoresHadBeenOneStretch) {
  ForEachTier([] {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<float> scores = TiedScores(seed, 2000, 12);
      for (int64_t k : {1, 50, 700}) {
        std::vector<ScoredIndex> merged;
        for (size_t first : {1200, 0, 500}) {
          const size_t end = first == 1200 ? 2000 : first == 0 ? 500 : 1200;
          const std::vector<ScoredIndex> part = KeepStretches(scores, {first, end}, {0}, k);
          const size_t count = merged.size();
          merged.resize(static_cast<size_t>(k) + part.size());
          merged.resize(static_cast<size_t>(
              KeepTopK(merged.data(), static_cast<int64_t>(count), part.data(), static_cast<int64_t>(part.size()), k)));
        }
        ExpectSameSet(scores, merged, k);
      }
    }
  });
}

TEST(TopKTest, ScoredEntriesBringTheirOwnIndicesAndSpecialValuesAreDropped) {
  const ScoredIndex more[] = {{NAN, 9}, {-0.0f, 7}, {0.0f, 8}, {-INFINITY, 1}, {0.0f, 3}, {INFINITY, 40}};
  ScoredIndex list[8];
  const int64_t count = KeepTopK(list, 0, more, 6, 2);
  ASSERT_EQ(count, 2);
  int32_t indices[2];
  SortedIndices(list, count, indices);
  EXPECT_EQ(indices[0], 3);   // of the three zeros the lowest index
  EXPECT_EQ(indices[1], 40);
  EXPECT_EQ(KeepTopK(list, 0, more, 6, 6), 4);
}

}  // namespace
}  // namespace tessera
