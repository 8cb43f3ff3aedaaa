#include "moe/assignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tessera {
namespace {

constexpr int32_t kRowsMax = 20;
constexpr int kExperts = 9, kPerRow = 3;

class AssignmentTest : public ::testing::Test {
 protected:
  AssignmentTest() : arena_("assignment", 1 << 16), assignment_(Assignment::Allocate(arena_, kRowsMax, kExperts, kPerRow)) {}

  struct Sorted {
    int32_t expert, row, slot;
    float weight;
  };
  // Sorts and compares every field with a stable sort of the assignments themselves.
  void Check(const std::vector<int32_t>& ids) {
    const int32_t num_rows = static_cast<int32_t>(ids.size()) / kPerRow;
    std::vector<float> weights;
    for (size_t i = 0; i < ids.size(); ++i) weights.push_back(0.25f + static_cast<float>(i));
    assignment_.Sort({nullptr, &num_rows}, ids.data(), weights.data());

    std::vector<Sorted> expected;
    for (int32_t i = 0; i < num_rows * kPerRow; ++i)
      if (ids[static_cast<size_t>(i)] >= 0)
        expected.push_back({ids[static_cast<size_t>(i)], i / kPerRow, i % kPerRow, weights[static_cast<size_t>(i)]});
      else
        EXPECT_EQ(assignment_.position[i], -1);
    std::stable_sort(expected.begin(), expected.end(), [](const Sorted& a, const Sorted& b) { return a.expert < b.expert; });
    ASSERT_EQ(assignment_.first[0], 0);
    ASSERT_EQ(assignment_.first[kExperts], static_cast<int32_t>(expected.size()));
    std::vector<int32_t> active;
    for (int expert = 0; expert < kExperts; ++expert) {
      ASSERT_LE(assignment_.first[expert], assignment_.first[expert + 1]);
      if (assignment_.first[expert] < assignment_.first[expert + 1]) active.push_back(expert);
      for (int32_t place = assignment_.first[expert]; place < assignment_.first[expert + 1]; ++place) {
        const Sorted& want = expected[static_cast<size_t>(place)];
        ASSERT_EQ(want.expert, expert);
        EXPECT_EQ(assignment_.row[place], want.row);
        EXPECT_EQ(assignment_.weight[place], want.weight);
        EXPECT_EQ(assignment_.position[want.row * kPerRow + want.slot], place);
      }
    }
    EXPECT_EQ(std::vector<int32_t>(assignment_.active_experts, assignment_.active_experts + *assignment_.num_active), active);
  }

  Arena arena_;
  Assignment assignment_;
};

TEST_F(AssignmentTest, AnyStepIsSortedByExpertWithRowsAscendingAndPositionsInverse) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {  // over what the step before left behind
    std::vector<int32_t> ids(random() % (kRowsMax + 1) * kPerRow);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % (kExperts + 2)) - 1 - static_cast<int32_t>(round % 2);
    for (int32_t& id : ids) id = std::clamp(id, -1, kExperts - 1);
    Check(ids);
  }
}

TEST_F(AssignmentTest, AnEmptyStepHasNoActiveExpert) {
  Check({2, 4, 8, 0, 1, 2});
  Check({});
  EXPECT_EQ(*assignment_.num_active, 0);
}

TEST_F(AssignmentTest, RowsWithoutExpertsAreSkipped) {
  Check({-1, -1, -1});
  EXPECT_EQ(*assignment_.num_active, 0);
  Check({-1, -1, -1, 0, 3, 8, -1, -1, -1, 3, 5, 8});
  EXPECT_EQ(*assignment_.num_active, 4);
}

TEST_F(AssignmentTest, AllRowsMayChooseTheSameExpert) {
  std::vector<int32_t> ids;
  for (int32_t row = 0; row < kRowsMax; ++row) ids.insert(ids.end(), {7, -1, -1});
  Check(ids);
  EXPECT_EQ(assignment_.first[8] - assignment_.first[7], kRowsMax);
}

}  // namespace
}  // namespace tessera
