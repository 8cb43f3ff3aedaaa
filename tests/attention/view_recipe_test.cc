#include "attention/view_recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "core/random.h"

namespace tessera {
namespace {

std::vector<uint8_t> Bytes(int64_t count) { return std::vector<uint8_t>(static_cast<size_t>(count)); }

// [rows, tail...] at `offset` in rows of `row_bytes`.
ShapedView Slice(uint8_t* root, int64_t offset, int64_t rows, int64_t row_bytes, std::vector<int64_t> tail, Dtype dtype = Dtype::kU8) {
  ShapedView view{root + offset, {rows}, {row_bytes}, dtype};
  int64_t stride = DtypeBytes(dtype);
  view.strides_bytes.resize(tail.size() + 1);
  for (size_t i = tail.size(); i-- > 0;) {
    view.strides_bytes[i + 1] = stride;
    stride *= tail[i];
  }
  view.shape.insert(view.shape.end(), tail.begin(), tail.end());
  return view;
}

TEST(ViewRecipeTest, RebuildsAddressShapeAndStridesOfColumnSlices) {
  std::vector<uint8_t> first = Bytes(4096), second = Bytes(960);
  ViewRecipes recipes;
  EXPECT_EQ(recipes.AddRoot(first.data(), 4096), 0);
  EXPECT_EQ(recipes.AddRoot(second.data(), 960), 1);
  const std::vector<ShapedView> views = {
      Slice(first.data(), 0, 16, 256, {2, 3, 8}, Dtype::kBF16),
      Slice(first.data(), 96, 16, 256, {2, 19}, Dtype::kF32),
      Slice(first.data(), 256 - 8, 15, 256, {1}, Dtype::kI64),  // fewer rows than the root has
      Slice(second.data(), 64, 10, 96, {32}),
      Slice(second.data(), 0, 1, 960, {4, 16}),  // a contiguous range is a root of one row
  };
  for (size_t i = 0; i < 4; ++i) recipes.Record("view " + std::to_string(i), views[i]);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(recipes.Rebuild(recipes.recipes()[i]), views[i]) << i;
  const ViewRecipe& floats = recipes.recipes()[1];
  EXPECT_EQ(floats.offset_bytes, 96);
  EXPECT_EQ(floats.bytes, 152);
  EXPECT_EQ(floats.rows, 16);
  EXPECT_EQ(floats.tail_shape, (std::vector<int64_t>{2, 19}));
  EXPECT_EQ(recipes.recipes()[3].root_idx, 1);

  // The same recipe over other memory: bytes written through it lie where the recorded view would read them.
  std::vector<uint8_t> other = Bytes(4096);
  ViewRecipes elsewhere;
  elsewhere.AddRoot(other.data(), 4096);
  const ShapedView moved = elsewhere.Rebuild(floats);
  EXPECT_EQ(moved.address, other.data() + 96);
  EXPECT_EQ(moved.strides_bytes, views[1].strides_bytes);

  ViewRecipes contiguous;
  contiguous.AddRoot(second.data(), 960);
  EXPECT_EQ(contiguous.Rebuild(contiguous.Record("range", views[4])), views[4]);
}

TEST(ViewRecipeTest, RootsAreToldApartByAddressAndNamesByView) {
  std::vector<uint8_t> root = Bytes(1024);
  ViewRecipes recipes;
  EXPECT_EQ(recipes.AddRoot(root.data(), 1024), 0);
  EXPECT_EQ(recipes.AddRoot(root.data(), 1024), 0);
  EXPECT_EQ(recipes.num_roots(), 1);
  recipes.Record("a", Slice(root.data(), 0, 4, 64, {32}));
  recipes.Record("a", Slice(root.data(), 0, 4, 64, {32}));
  recipes.Record("b", Slice(root.data(), 32, 4, 64, {32}));
  EXPECT_EQ(recipes.recipes().size(), 2u);
}

// Bytes of the root that a recipe covers, one by one.
std::set<int64_t> Covered(const ViewRecipe& recipe) {
  std::set<int64_t> bytes;
  for (int64_t row = 0; row < recipe.rows; ++row)
    for (int64_t i = 0; i < recipe.bytes; ++i) bytes.insert(row * recipe.row_bytes + recipe.offset_bytes + i);
  return bytes;
}

TEST(ViewRecipeTest, OverlapIsSharingAByte) {
  constexpr uint64_t kSeed = 11;
  uint64_t counter = 0;
  const auto draw = [&](int64_t count) { return static_cast<int64_t>(UniformDouble(kSeed, 0, counter++) * static_cast<double>(count)); };
  int64_t overlapping = 0, apart = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    ViewRecipe pair[2];
    for (ViewRecipe& recipe : pair) {
      recipe.row_bytes = trial % 3 == 0 ? 24 : 1 + draw(40);
      recipe.bytes = 1 + draw(std::min<int64_t>(recipe.row_bytes, 12));
      recipe.offset_bytes = draw(recipe.row_bytes - recipe.bytes + 1);
      recipe.rows = 1 + draw(6);
    }
    const std::set<int64_t> a = Covered(pair[0]), b = Covered(pair[1]);
    const bool share = std::any_of(a.begin(), a.end(), [&](int64_t byte) { return b.count(byte) > 0; });
    ASSERT_EQ(Overlap(pair[0], pair[1]), share) << "trial " << trial;
    ASSERT_EQ(Overlap(pair[1], pair[0]), share) << "trial " << trial;
    (share ? overlapping : apart) += 1;
    pair[1].root_idx = 1;
    ASSERT_FALSE(Overlap(pair[0], pair[1]));
  }
  EXPECT_GT(overlapping, 500);
  EXPECT_GT(apart, 500);
}

TEST(ViewRecipeDeathTest, RefusesWhatCannotBeRebuiltOrOverlaps) {
  std::vector<uint8_t> root = Bytes(1024);
  ViewRecipes recipes;
  recipes.AddRoot(root.data(), 1024);
  recipes.Record("keys", Slice(root.data(), 16, 16, 64, {32}));
  EXPECT_DEATH(recipes.Record("values", Slice(root.data(), 40, 16, 64, {24})), "values overlaps keys");
  EXPECT_DEATH(recipes.Record("keys", Slice(root.data(), 16, 16, 64, {16})), "keys is recorded twice");
  EXPECT_DEATH(recipes.Record("wide", Slice(root.data(), 48, 16, 64, {17})), "wide: columns 48 . 17 in rows of 64 bytes");
  EXPECT_DEATH(recipes.Record("long", Slice(root.data(), 0, 17, 64, {8})), "long: 17 rows of 64 bytes in a root of 1024");
  EXPECT_DEATH(recipes.Record("odd", Slice(root.data(), 2, 16, 64, {3}, Dtype::kF32)), "odd: offset 2 .* misaligned for F32");
  EXPECT_DEATH(recipes.Record("far", Slice(root.data() + 1024, 0, 1, 64, {8})), "far: its address lies in none");
  ShapedView transposed{root.data(), {4, 2, 4}, {64, 1, 2}, Dtype::kU8};
  EXPECT_DEATH(recipes.Record("transposed", transposed), "transposed: a view that is not contiguous");
  EXPECT_DEATH(recipes.AddRoot(root.data(), 512), "has 1024 bytes and is added again with 512");
  EXPECT_DEATH(recipes.AddRoot(root.data() + 64, 512), "overlaps root 0");
}

}  // namespace
}  // namespace tessera
