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
      {1, CacheKind::kPending, 8, 80, 8, 4},        // an entry of 4 tokens pools the 4 before them too
      {1, CacheKind::kIndexPending, 18, 24, 8, 4},  // reaches back 10 tokens
      {2, CacheKind::kCompressed, kTokensMax + 1, 32, 0, 1},
      {3, CacheKind::kPending, 16, 8, 16, 16},
  };
}

// The rows that a sequence of n tokens must keep in a layout, as indices in the slot.
std::set<int64_t> KeptRows(const CacheLayout& layout, int64_t num_tokens) {
  std::set<int64_t> rows;
  if (layout.ring_tokens > 0) {
    for (int64_t position = 0; position < num_tokens; ++position) {
      // Whole entries are pooled and done with, but for the tokens that the entry after them pools again.
      const int64_t next_entry = num_tokens / layout.ratio;
      const bool needed = layout.ratio == 1 ? position >= num_tokens - layout.ring_tokens
                                            : position / layout.ratio >= next_entry - (layout.ring_tokens / layout.ratio - 1);
      if (needed) rows.insert(position % layout.rows_per_slot);
    }
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
    const StateSnapshot snapshot = SnapshotState(from, source, {num_tokens});
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
    EXPECT_EQ(snapshot.bytes(), bytes);
    EXPECT_EQ(SnapshotBytes(Layouts(), {num_tokens}), bytes);
    EXPECT_GE(SequenceStateBytes(Layouts(), num_tokens), bytes);
  }
}

std::vector<uint8_t> AllBytes(const KvCache& cache, int32_t slot) {
  std::vector<uint8_t> bytes;
  for (const CacheLayout& layout : cache.layouts()) {
    const uint8_t* rows = cache.Store(layout.layer_idx, layout.kind).Slot(slot);
    bytes.insert(bytes.end(), rows, rows + layout.rows_per_slot * layout.row_bytes);
  }
  return bytes;
}

TEST(SequenceStateTest, ASnapshotOutlivesTheSlotItWasTakenFrom) {
  KvCache cache(Layouts(), kSlots);
  Fill(cache, 3);
  const StateSnapshot snapshot = SnapshotState(cache, 1, {33});
  cache.Release(1);
  EXPECT_NE(SnapshotState(cache, 1, {33}).rings, snapshot.rings);
  RestoreState(cache, 1, snapshot);
  EXPECT_EQ(SnapshotState(cache, 1, {33}).grown, snapshot.grown);
  EXPECT_EQ(SnapshotState(cache, 1, {33}).rings, snapshot.rings);
}

TEST(SequenceStateTest, AChainOfDifferencesIsTheWholeState) {
  KvCache from(Layouts(), kSlots), whole(Layouts(), kSlots), chained(Layouts(), kSlots);
  Fill(from, 4);
  for (const std::vector<int64_t>& ends : {std::vector<int64_t>{5, 7, 60}, {16, 32, 48}, {3, 4, 5, 6, 7, 8, 9}, {1, 59}, {0, 0, 31}}) {
    whole.Release(0);
    chained.Release(0);
    int64_t before = 0, bytes = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      const StateSnapshot delta = SnapshotState(from, 2, {ends[i], before});
      EXPECT_EQ(delta.bytes(), SnapshotBytes(Layouts(), {ends[i], before}));
      bytes += static_cast<int64_t>(delta.grown.size());
      if (i + 1 < ends.size())
        RestoreGrown(chained, 0, delta);
      else
        RestoreState(chained, 0, delta);
      before = ends[i];
    }
    const StateSnapshot full = SnapshotState(from, 2, {ends.back()});
    EXPECT_EQ(static_cast<int64_t>(full.grown.size()), bytes) << "no row is kept twice";
    RestoreState(whole, 0, full);
    EXPECT_EQ(AllBytes(chained, 0), AllBytes(whole, 0));
  }
}

TEST(SequenceStateTest, ATrimmedSnapshotIsTheOneFromThereOn) {
  KvCache cache(Layouts(), kSlots);
  Fill(cache, 5);
  for (int64_t first = 0; first <= 40; first += 5)
    for (int64_t cut = first; cut <= 40; ++cut) {
      StateSnapshot trimmed = SnapshotState(cache, 0, {40, first});
      TrimSnapshot(Layouts(), cut, trimmed);
      const StateSnapshot expected = SnapshotState(cache, 0, {40, cut});
      ASSERT_EQ(trimmed.grown, expected.grown) << first << " cut at " << cut;
      ASSERT_EQ(trimmed.rings, expected.rings);
      ASSERT_EQ(trimmed.from_tokens, cut);
    }
}

// Writes the rows of tokens [0, num_tokens) as a run does: what a row holds is a function of its position alone.
void WritePositions(KvCache& cache, int32_t slot, int64_t first, int64_t num_tokens) {
  for (const CacheLayout& layout : cache.layouts()) {
    const RowStore store = cache.Store(layout.layer_idx, layout.kind);
    for (int64_t position = first; position < num_tokens; ++position)
      if (layout.is_ring() || (position + 1) % layout.ratio == 0)
        std::memset(layout.is_ring() ? store.RingRow(slot, position) : store.Row(slot, position / layout.ratio),
                    static_cast<int>(1 + position), static_cast<size_t>(layout.row_bytes));
  }
}

TEST(SequenceStateTest, AnEarlierStateIsTakenWhileTheRingsHoldItAndNotAfter) {
  std::vector<CacheLayout> layouts = Layouts();
  layouts[0].rows_per_slot = layouts[2].rows_per_slot = 30;  // windows of 7 that hold 23 rows more
  int64_t held = 0;
  for (int64_t num_tokens = 0; num_tokens <= 40; ++num_tokens) {
    KvCache then(layouts, 1), later(layouts, 1);
    WritePositions(then, 0, 0, num_tokens);
    WritePositions(later, 0, 0, num_tokens);
    const StateSnapshot expected = SnapshotState(then, 0, {num_tokens});
    for (int64_t more = 0; more <= 20; ++more) {
      if (more > 0) WritePositions(later, 0, num_tokens + more - 1, num_tokens + more);
      bool holds = true;
      for (const CacheLayout& layout : layouts)
        for (int64_t position = layout.is_ring() ? layout.FirstKept(num_tokens) : num_tokens; position < num_tokens; ++position)
          holds = holds && position + layout.rows_per_slot >= num_tokens + more;
      ASSERT_EQ(RingsHold(layouts, num_tokens, num_tokens + more), holds) << num_tokens << " + " << more;
      if (!holds) continue;
      held += more > 0;
      const StateSnapshot got = SnapshotState(later, 0, {num_tokens, 0, num_tokens + more});
      ASSERT_EQ(got.grown, expected.grown) << num_tokens << " + " << more;
      ASSERT_EQ(got.rings, expected.rings) << num_tokens << " + " << more;
    }
  }
  EXPECT_GT(held, 0);
}

TEST(SequenceStateTest, PagesAreThoseOfEveryRowThatWasWritten) {
  const std::vector<CacheLayout> layouts = {{0, CacheKind::kWindow, 100, 528, 7, 1}, {0, CacheKind::kCompressed, 1000, 288, 0, 4}};
  EXPECT_EQ(ResidentBytes(layouts, 0), 0);
  EXPECT_EQ(ResidentBytes(layouts, 3), 4096);                    // no entry is complete
  EXPECT_EQ(ResidentBytes(layouts, 4), 2 * 4096);
  EXPECT_EQ(ResidentBytes(layouts, 100), (13 + 2) * 4096);       // 52,800 bytes of ring, 25 entries
  EXPECT_EQ(ResidentBytes(layouts, 4000), (13 + 71) * 4096);     // the ring goes around, 288,000 bytes of entries
  EXPECT_EQ(StateBytesPerToken(layouts), 72);
}

TEST(SequenceStateDeathTest, RefusesASnapshotOfAnotherSizeAndAStateThatIsGone) {
  KvCache cache(Layouts(), kSlots);
  StateSnapshot snapshot = SnapshotState(cache, 0, {20});
  snapshot.rings.pop_back();
  EXPECT_DEATH(RestoreState(cache, 0, snapshot), "these caches keep");
  snapshot.rings.push_back(0);
  snapshot.grown.push_back(0);
  EXPECT_DEATH(RestoreState(cache, 0, snapshot), "these caches keep");
  EXPECT_DEATH(SnapshotState(cache, 0, {20, 0, 40}), "do not hold the state after 20");
}

}  // namespace
}  // namespace tessera
