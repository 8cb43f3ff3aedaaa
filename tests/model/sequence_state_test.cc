#include "model/sequence_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "core/random.h"

namespace tessera {
namespace {

constexpr int32_t kSlots = 3;
constexpr int64_t kTokensMax = 60;

// Every kind of cache: rings of several lengths, and rows that grow with the tokens by several ratios.
std::vector<CacheLayout> Layouts() {
  return {
      {0, CacheKind::kWindow, 15, 48, 7, 1},
      {0, CacheKind::kEngramHistory, 3, 4, 3, 1},
      {1, CacheKind::kWindow, 15, 48, 7, 1},
      {1, CacheKind::kCompressed, kTokensMax / 4 + 1, 32, 0, 4},
      {1, CacheKind::kIndexCodes, kTokensMax / 4 + 1, 16, 0, 4},
      {1, CacheKind::kIndexScales, kTokensMax / 4 + 1, 1, 0, 4},
      {1, CacheKind::kPending, 8, 80, 8, 1},
      {1, CacheKind::kIndexPending, 8, 24, 8, 1},
      {2, CacheKind::kCompressed, kTokensMax + 1, 32, 0, 1},
  };
}

// The rows that a sequence of n tokens must keep in a layout, as indices in the slot.
std::set<int64_t> KeptRows(const CacheLayout& layout, int64_t num_tokens) {
  std::set<int64_t> rows;
  if (layout.ring_tokens > 0) {
    for (int64_t position = num_tokens - 1; position >= 0 && position >= num_tokens - layout.ring_tokens; --position)
      rows.insert(position % layout.rows_per_slot);
  } else {
    for (int64_t row = 0; row < num_tokens / layout.ratio; ++row) rows.insert(row);
  }
  return rows;
}

void Fill(KvCache& cache, uint64_t seed) {
  uint64_t counter = 0;
  for (const CacheLayout& layout : cache.layouts())
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      uint8_t* rows = cache.Store(layout.layer_idx, layout.kind).Slot(slot);
      for (int64_t i = 0; i < layout.rows_per_slot * layout.row_bytes; ++i)
        rows[i] = static_cast<uint8_t>(Philox4x32(seed, counter++, 0)[0]);
    }
}

TEST(SequenceStateTest, ASnapshotRestoresEveryKindIntoAnySlotAndTouchesNothingElse) {
  KvCache from(Layouts(), kSlots), to(Layouts(), kSlots), before(Layouts(), kSlots);
  Fill(from, 1);
  for (int64_t num_tokens = 0; num_tokens <= kTokensMax; ++num_tokens) {
    const int32_t source = static_cast<int32_t>(num_tokens % kSlots), target = static_cast<int32_t>((num_tokens / kSlots) % kSlots);
    Fill(to, 2);
    Fill(before, 2);
    const StateSnapshot snapshot = SnapshotState(from, source, num_tokens);
    EXPECT_EQ(snapshot.num_tokens, num_tokens);
    RestoreState(to, target, snapshot);
    int64_t bytes = 0;
    for (const CacheLayout& layout : Layouts()) {
      const std::set<int64_t> kept = KeptRows(layout, num_tokens);
      bytes += static_cast<int64_t>(kept.size()) * layout.row_bytes;
      for (int32_t slot = 0; slot < kSlots; ++slot)
        for (int64_t row = 0; row < layout.rows_per_slot; ++row) {
          const bool restored = slot == target && kept.count(row) > 0;
          const RowStore got = to.Store(layout.layer_idx, layout.kind), had = before.Store(layout.layer_idx, layout.kind);
          const uint8_t* expected = restored ? from.Store(layout.layer_idx, layout.kind).Row(source, row) : had.Row(slot, row);
          ASSERT_EQ(std::memcmp(got.Row(slot, row), expected, static_cast<size_t>(layout.row_bytes)), 0)
              << num_tokens << " tokens, layer " << layout.layer_idx << " kind " << static_cast<int>(layout.kind) << " slot " << slot
              << " row " << row;
        }
    }
    EXPECT_EQ(static_cast<int64_t>(snapshot.bytes.size()), bytes);
    EXPECT_EQ(SequenceStateBytes(Layouts(), num_tokens), bytes);
  }
}

TEST(SequenceStateTest, ASnapshotOutlivesTheSlotItWasTakenFrom) {
  KvCache cache(Layouts(), kSlots);
  Fill(cache, 3);
  const StateSnapshot snapshot = SnapshotState(cache, 1, 33);
  cache.Release(1);
  EXPECT_NE(SnapshotState(cache, 1, 33).bytes, snapshot.bytes);
  RestoreState(cache, 1, snapshot);
  EXPECT_EQ(SnapshotState(cache, 1, 33).bytes, snapshot.bytes);
}

TEST(SequenceStateTest, PagesAreThoseOfEveryRowThatWasWritten) {
  const std::vector<CacheLayout> layouts = {{0, CacheKind::kWindow, 100, 528, 7, 1}, {0, CacheKind::kCompressed, 1000, 288, 0, 4}};
  EXPECT_EQ(SequencePageBytes(layouts, 0), 0);
  EXPECT_EQ(SequencePageBytes(layouts, 3), 4096);                    // no entry is complete
  EXPECT_EQ(SequencePageBytes(layouts, 4), 2 * 4096);
  EXPECT_EQ(SequencePageBytes(layouts, 100), (13 + 2) * 4096);       // 52,800 bytes of ring, 25 entries
  EXPECT_EQ(SequencePageBytes(layouts, 4000), (13 + 71) * 4096);     // the ring goes around, 288,000 bytes of entries
  EXPECT_EQ(StateBytesPerToken(layouts), 72);
}

TEST(SequenceStateDeathTest, RefusesASnapshotOfAnotherSize) {
  KvCache cache(Layouts(), kSlots);
  StateSnapshot snapshot = SnapshotState(cache, 0, 20);
  snapshot.bytes.pop_back();
  EXPECT_DEATH(RestoreState(cache, 0, snapshot), "these caches keep");
  snapshot.bytes.resize(snapshot.bytes.size() + 2);
  EXPECT_DEATH(RestoreState(cache, 0, snapshot), "these caches keep");
}

}  // namespace
}  // namespace tessera
