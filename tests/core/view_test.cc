#include "core/view.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tessera {
namespace {

TEST(ViewTest, RowsAndColumnsKeepTheStride) {
  std::vector<int> values(24);
  std::iota(values.begin(), values.end(), 0);
  const View<int> all = MakeView(values.data(), 4, 6);
  const View<int> part = all.Rows(1, 2).Columns(2, 3);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.cols, 3);
  EXPECT_EQ(part.stride, 6);
  EXPECT_EQ(part.Row(0)[0], 8);
  EXPECT_EQ(part.Row(1)[2], 16);
  EXPECT_EQ(part.Rows(1, 1).Row(0)[0], 14);
}

TEST(ViewTest, WidensToConstAndSeesWrites) {
  std::vector<float> values(6, 1.0f);
  const View<float> view = MakeView(values.data(), 2, 3);
  const View<const float> reader = view;
  view.Row(1)[2] = 5.0f;
  EXPECT_EQ(reader.Row(1)[2], 5.0f);
  EXPECT_EQ(reader.rows, 2);
}

}  // namespace
}  // namespace tessera
