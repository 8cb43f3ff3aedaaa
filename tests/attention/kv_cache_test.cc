#include "attention/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/check.h"

namespace tessera {
namespace {

std::vector<CacheLayout> Layouts() {
  return {
      {0, CacheKind::kWindow, 11, 528, 7, 1},      {0, CacheKind::kEngramHistory, 3, 4, 3, 1}, {1, CacheKind::kWindow, 11, 528, 7, 1},
      {1, CacheKind::kCompressed, 100, 288, 0, 2}, {1, CacheKind::kIndexCodes, 100, 64, 0, 2}, {1, CacheKind::kIndexScales, 100, 4, 0, 2},
      {1, CacheKind::kPending, 2, 4096, 2, 1},     {2, CacheKind::kIndexPending, 8, 1, 8, 1},
  };
}

TEST(KvCacheTest, RowsOfAllStoresAndSlotsAreDisjointAndContiguous) {
  constexpr int32_t kNumSlots = 3;
  const KvCache cache(Layouts(), kNumSlots);
  ASSERT_EQ(cache.num_slots(), kNumSlots);
  ASSERT_EQ(cache.layouts().size(), Layouts().size());
  const auto for_each_row = [&](const auto& body) {
    uint8_t stamp = 1;
    for (const CacheLayout& layout : cache.layouts()) {
      const RowStore store = cache.Store(layout.layer_idx, layout.kind);
      for (int32_t slot = 0; slot < kNumSlots; ++slot)
        for (int64_t row = 0; row < layout.rows_per_slot; ++row, stamp = static_cast<uint8_t>(stamp * 5 + 1)) body(store, slot, row, stamp);
    }
  };
  // Every row gets bytes of its own; if two shared memory, the first of them would lose its own.
  for_each_row([](const RowStore& store, int32_t slot, int64_t row, uint8_t stamp) {
    std::memset(store.Row(slot, row), stamp, static_cast<size_t>(store.row_bytes));
  });
  for_each_row([](const RowStore& store, int32_t slot, int64_t row, uint8_t stamp) {
    for (int64_t i = 0; i < store.row_bytes; ++i) ASSERT_EQ(store.Row(slot, row)[i], stamp);
    ASSERT_EQ(store.Row(slot, row), store.Slot(slot) + row * store.row_bytes);
  });
  size_t payload = 0;
  for (const CacheLayout& layout : Layouts()) payload += static_cast<size_t>(layout.rows_per_slot * layout.row_bytes) * kNumSlots;
  EXPECT_GE(cache.reserved_bytes(), payload);
}

TEST(KvCacheTest, AStoreHasTheSizesOfItsLayoutAndAbsentOnesAreNotPresent) {
  const KvCache cache(Layouts(), 2);
  for (const CacheLayout& layout : Layouts()) {
    const RowStore store = cache.Store(layout.layer_idx, layout.kind);
    EXPECT_TRUE(store.present());
    EXPECT_EQ(store.rows_per_slot, layout.rows_per_slot);
    EXPECT_EQ(store.row_bytes, layout.row_bytes);
    EXPECT_GE(store.slot_bytes, layout.rows_per_slot * layout.row_bytes);
  }
  EXPECT_FALSE(cache.Store(0, CacheKind::kCompressed).present());
  EXPECT_FALSE(cache.Store(3, CacheKind::kWindow).present());
}

TEST(KvCacheTest, ARingHoldsAPositionAtItsRemainder) {
  const KvCache cache(Layouts(), 2);
  const RowStore window = cache.Store(1, CacheKind::kWindow);
  for (const int64_t position : {int64_t{0}, int64_t{10}, int64_t{11}, int64_t{21}, int64_t{22}, int64_t{1} << 40})
    EXPECT_EQ(window.RingRow(1, position), window.Row(1, position % 11)) << position;
}

TEST(KvCacheTest, AReleasedSlotReadsAsZeroAndItsNeighboursKeepTheirRows) {
  KvCache cache(Layouts(), 3);
  const auto fill = [&](int32_t slot, uint8_t byte) {
    for (const CacheLayout& layout : cache.layouts())
      std::memset(cache.Store(layout.layer_idx, layout.kind).Slot(slot), byte,
                  static_cast<size_t>(layout.rows_per_slot * layout.row_bytes));
  };
  const auto expect = [&](int32_t slot, uint8_t byte) {
    for (const CacheLayout& layout : cache.layouts()) {
      const uint8_t* rows = cache.Store(layout.layer_idx, layout.kind).Slot(slot);
      for (int64_t i = 0; i < layout.rows_per_slot * layout.row_bytes; ++i) ASSERT_EQ(rows[i], byte) << "slot " << slot;
    }
  };
  for (int32_t slot = 0; slot < 3; ++slot) expect(slot, 0);
  for (int32_t slot = 0; slot < 3; ++slot) fill(slot, static_cast<uint8_t>(0x11 * (slot + 1)));
  cache.Release(1);
  expect(0, 0x11);
  expect(1, 0);
  expect(2, 0x33);
  fill(1, 0x44);  // a released slot can be used again
  expect(1, 0x44);
}

TEST(KvCacheTest, AnAddressSpaceTheHostRefusesIsAnError) {
  EXPECT_THROW(KvCache({{0, CacheKind::kCompressed, int64_t{1} << 40, int64_t{1} << 16, 0, 1}}, 1), Error);
}

TEST(KvCacheDeathTest, RefusesEmptyLayoutsAndSlotsItDoesNotHave) {
  EXPECT_DEATH(KvCache({{4, CacheKind::kWindow, 0, 528, 7, 1}}, 1), "layer 4: 0 rows of 528 bytes");
  KvCache cache(Layouts(), 2);
  EXPECT_DEATH(cache.Release(2), "slot 2 of 2");
  EXPECT_DEATH(cache.Release(-1), "slot -1 of 2");
}

}  // namespace
}  // namespace tessera
