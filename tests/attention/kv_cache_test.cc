#include "attention/kv_cache.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <set>

#include "core/check.h"

namespace tessera {
namespace {

std::vector<CacheLayout> Layouts() {
  return {
      {0, CacheKind::kWindow, 11, 528, 7, 1},      {0, CacheKind::kEngramHistory, 3, 4, 3, 1}, {1, CacheKind::kWindow, 11, 528, 7, 1},
      {1, CacheKind::kCompressed, 100, 288, 0, 2}, {1, CacheKind::kIndexCodes, 100, 64, 0, 2}, {1, CacheKind::kIndexScales, 100, 4, 0, 2},
      {1, CacheKind::kPending, 2, 4096, 2, 1},     {2, CacheKind::kIndexPending, 8, 4, 8, 1},
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

constexpr int64_t kPage = 4096;

// Resident pages of a slot by (layer, kind), as indices from the start of its rows.
std::map<std::pair<int, CacheKind>, std::set<int64_t>> ResidentPages(const KvCache& cache, int32_t slot) {
  std::map<std::pair<int, CacheKind>, std::set<int64_t>> resident;
  for (const CacheLayout& layout : cache.layouts()) {
    const size_t num_pages = static_cast<size_t>((layout.rows_per_slot * layout.row_bytes + kPage - 1) / kPage);
    std::vector<unsigned char> flags(num_pages);
    EXPECT_EQ(mincore(cache.Store(layout.layer_idx, layout.kind).Slot(slot), num_pages * kPage, flags.data()), 0);
    std::set<int64_t>& pages = resident[{layout.layer_idx, layout.kind}];
    for (size_t page = 0; page < num_pages; ++page)
      if ((flags[page] & 1) != 0) pages.insert(static_cast<int64_t>(page));
  }
  return resident;
}
int64_t ResidentPageBytes(const KvCache& cache, int32_t slot) {
  int64_t bytes = 0;
  for (const auto& [key, pages] : ResidentPages(cache, slot)) bytes += static_cast<int64_t>(pages.size()) * kPage;
  return bytes;
}

// Long enough that entries and rings take many pages.
std::vector<CacheLayout> LongLayouts() {
  return {
      {0, CacheKind::kWindow, 639, 528, 127, 1},    {0, CacheKind::kEngramHistory, 3, 4, 3, 1},
      {1, CacheKind::kCompressed, 5001, 288, 0, 2}, {1, CacheKind::kIndexCodes, 5001, 64, 0, 2},
      {1, CacheKind::kPending, 2, 4096, 2, 2},      {2, CacheKind::kCompressed, 10001, 288, 0, 1},
  };
}

TEST(KvCacheTest, PopulatedPagesAreThoseThatTheTokensWriteAndGoBackWithTheSlot) {
  KvCache cache(LongLayouts(), 3);
  int64_t expected = 0;
  for (const int64_t num_tokens : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{15}, int64_t{16}, int64_t{640}, int64_t{9999}}) {
    cache.Populate(1, num_tokens);
    expected = 0;
    const auto resident = ResidentPages(cache, 1);
    for (const CacheLayout& layout : LongLayouts()) {
      std::set<int64_t> pages;
      for (int64_t position = 0; position < num_tokens; ++position) {
        if (layout.ring_tokens == 0 && (position + 1) % layout.ratio != 0) continue;
        const int64_t row = layout.ring_tokens > 0 ? position % layout.rows_per_slot : position / layout.ratio;
        for (int64_t page = row * layout.row_bytes / kPage; page <= ((row + 1) * layout.row_bytes - 1) / kPage; ++page) pages.insert(page);
      }
      EXPECT_EQ(resident.at({layout.layer_idx, layout.kind}), pages) << "layer " << layout.layer_idx << ", " << num_tokens << " tokens";
      expected += static_cast<int64_t>(pages.size()) * kPage;
    }
    EXPECT_EQ(ResidentBytes(LongLayouts(), num_tokens), expected);
    EXPECT_EQ(ResidentPageBytes(cache, 0) + ResidentPageBytes(cache, 2), 0);
  }
  EXPECT_GT(expected, 4'000'000);
  EXPECT_EQ(cache.populated_tokens(1), 9999);
  cache.Release(1);
  EXPECT_EQ(ResidentPageBytes(cache, 1), 0);
  EXPECT_EQ(cache.populated_tokens(1), 0);
  cache.Populate(1, 100);
  EXPECT_EQ(ResidentPageBytes(cache, 1), ResidentBytes(LongLayouts(), 100));
}

TEST(KvCacheTest, PopulatingKeepsWhatRowsHoldAndStopsAtTheEndOfASlot) {
  KvCache cache(LongLayouts(), 2);
  const RowStore entries = cache.Store(2, CacheKind::kCompressed);
  std::memset(entries.Row(0, 0), 0x5a, 100 * 288);
  cache.Populate(0, 60);
  cache.Populate(0, int64_t{1} << 40);
  for (int64_t i = 0; i < 100 * 288; ++i) ASSERT_EQ(entries.Row(0, 0)[i], 0x5a);
  EXPECT_EQ(entries.Row(0, 100)[0], 0);
  EXPECT_EQ(ResidentPageBytes(cache, 1), 0);
}

TEST(KvCacheTest, MemoryTheHostHasNotGotIsAnErrorThatNamesTheBytes) {
  KvCache cache(LongLayouts(), 2);
  cache.Populate(0, 100);
  // A hole in the reservation: the kernel answers ENOMEM, as it does when a page cannot be had.
  const RowStore entries = cache.Store(2, CacheKind::kCompressed);
  ASSERT_EQ(munmap(entries.Slot(1) + 100 * kPage, kPage), 0);
  std::string message;
  try {
    cache.Populate(1, 5000);
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find(std::to_string(ResidentBytes(LongLayouts(), 5000)) + " bytes for tokens 0 to 5000"), std::string::npos) << message;
  EXPECT_NE(message.find("layer 2 compressed: Cannot allocate memory"), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(cache.populated_tokens(1), 0);
  cache.Populate(0, 200);  // the other sequence goes on
  EXPECT_EQ(cache.populated_tokens(0), 200);
}

TEST(KvCacheTest, EveryStoreIsItsRecipeAndTheRangesOfAllSlotsAreDisjoint) {
  const KvCache cache(LongLayouts(), 3);
  const std::vector<ViewRecipe>& recipes = cache.recipes().recipes();
  ASSERT_EQ(recipes.size(), cache.layouts().size());
  EXPECT_EQ(cache.recipes().num_roots(), 1);
  std::map<uint8_t*, uint8_t*> ranges;
  for (size_t i = 0; i < recipes.size(); ++i) {
    const CacheLayout& layout = cache.layouts()[i];
    const RowStore store = cache.Store(layout.layer_idx, layout.kind);
    const ShapedView view = cache.recipes().Rebuild(recipes[i]);
    EXPECT_EQ(view.address, store.base);
    EXPECT_EQ(view.strides_bytes, (std::vector<int64_t>{store.slot_bytes, store.row_bytes, DtypeBytes(view.dtype)}));
    EXPECT_EQ(view.shape, (std::vector<int64_t>{3, layout.rows_per_slot, layout.row_bytes / DtypeBytes(view.dtype)}));
    EXPECT_EQ(recipes[i].offset_bytes % kPage, 0);
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(Overlap(recipes[i], recipes[j])) << recipes[i].name << ", " << recipes[j].name;
    for (int32_t slot = 0; slot < 3; ++slot) ranges[store.Slot(slot)] = store.Row(slot, store.rows_per_slot);
  }
  EXPECT_EQ(ranges.size(), 3 * recipes.size());
  const uint8_t* end = nullptr;
  for (const auto& [first, last] : ranges) {
    EXPECT_GE(first, end);
    end = last;
  }
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
