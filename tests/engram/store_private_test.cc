#include "engram/store_private.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/matrices.h"

namespace tessera {
namespace {

using testing::Matrix;
using testing::RandomMatrix;

constexpr int64_t kHeadDim = 64, kColumns = 3;

TEST(PrivateStoreTest, ARowIsWhereItsTableHasItUntilTheNextIssue) {
  const Matrix tables[2] = {RandomMatrix({Format::kE4M3, 50, kHeadDim, 1, 32}, 1), RandomMatrix({Format::kE4M3, 70, kHeadDim, 1, 32}, 2)};
  PrivateStore store({tables[0].view, tables[1].view});
  const auto expect = [&](int table_idx, const std::vector<int64_t>& ids) {
    store.Wait(table_idx);
    for (size_t i = 0; i < ids.size(); ++i) {
      const StoredRow row = store.Row(table_idx, static_cast<int64_t>(i) / kColumns, static_cast<int64_t>(i) % kColumns);
      const Matrix& table = tables[table_idx];
      ASSERT_EQ(row.codes, table.payload.data() + 1 + ids[i] * kHeadDim) << "table " << table_idx << " place " << i;
      ASSERT_EQ(row.scales, table.scales.data() + ids[i] * (kHeadDim / 32));
    }
  };
  const auto issue = [&](int table_idx, const std::vector<int64_t>& ids) {
    store.Issue(table_idx, MakeView(ids.data(), static_cast<int64_t>(ids.size()) / kColumns, kColumns));
  };
  // Both tables are asked for before either is read; rows repeat and lie at both ends.
  const std::vector<int64_t> first = {0, 49, 7, 7, 7, 1, 48, 0, 0}, second = {69, 0, 3};
  issue(0, first);
  issue(1, second);
  expect(0, first);
  expect(1, second);
  const std::vector<int64_t> later = {5, 4, 3, 2, 1, 0};
  issue(0, later);
  expect(0, later);
  expect(1, second);
  issue(1, {});
  expect(1, {});
}

TEST(PrivateStoreDeathTest, RefusesTablesOfAnotherFormat) {
  const Matrix bf16_table = RandomMatrix({Format::kBF16, 4, 32}, 1), tiled = RandomMatrix({Format::kE4M3, 64, 32, 32, 32}, 2);
  EXPECT_DEATH(PrivateStore({bf16_table.view}), "Engram table of another format");
  EXPECT_DEATH(PrivateStore({tiled.view}), "Engram table of another format");
}

}  // namespace
}  // namespace tessera
