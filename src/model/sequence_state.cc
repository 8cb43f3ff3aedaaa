#include "model/sequence_state.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/threads.h"

namespace tessera {
namespace {

// Grown rows [begin, end) of a layout that tokens [from, to) added.
Range GrownRows(const CacheLayout& layout, int64_t from_tokens, int64_t num_tokens) {
  return {from_tokens / layout.ratio, num_tokens / layout.ratio};
}

int64_t GrownBytes(const std::vector<CacheLayout>& layouts, int64_t from_tokens, int64_t num_tokens) {
  int64_t bytes = 0;
  for (const CacheLayout& layout : layouts) {
    const Range rows = GrownRows(layout, from_tokens, num_tokens);
    if (!layout.is_ring()) bytes += (rows.end - rows.begin) * layout.row_bytes;
  }
  return bytes;
}

int64_t RingBytes(const std::vector<CacheLayout>& layouts, int64_t num_tokens) {
  int64_t bytes = 0;
  for (const CacheLayout& layout : layouts)
    if (layout.is_ring()) bytes += (num_tokens - layout.FirstKept(num_tokens)) * layout.row_bytes;
  return bytes;
}

// Calls body(address, bytes) for every run of grown rows.
template <class F>
void ForGrownRows(const KvCache& cache, int32_t slot, int64_t from_tokens, int64_t num_tokens, F&& body) {
  for (const CacheLayout& layout : cache.layouts()) {
    const Range rows = GrownRows(layout, from_tokens, num_tokens);
    if (layout.is_ring() || rows.begin == rows.end) continue;
    body(cache.Store(layout.layer_idx, layout.kind).Row(slot, rows.begin), static_cast<size_t>((rows.end - rows.begin) * layout.row_bytes));
  }
}

template <class F>
void ForRingRows(const KvCache& cache, int32_t slot, int64_t num_tokens, F&& body) {
  for (const CacheLayout& layout : cache.layouts()) {
    if (!layout.is_ring()) continue;
    const RowStore store = cache.Store(layout.layer_idx, layout.kind);
    for (int64_t position = layout.FirstKept(num_tokens); position < num_tokens; ++position)
      body(store.RingRow(slot, position), static_cast<size_t>(layout.row_bytes));
  }
}

// A cursor over saved bytes, either way.
struct Saved {
  uint8_t* next;
  void Take(const uint8_t* row, size_t bytes) {
    std::memcpy(next, row, bytes);
    next += bytes;
  }
};
struct Kept {
  const uint8_t* next;
  void Put(uint8_t* row, size_t bytes) {
    std::memcpy(row, next, bytes);
    next += bytes;
  }
};

}  // namespace

bool RingsHold(const std::vector<CacheLayout>& layouts, int64_t num_tokens, int64_t num_processed) {
  return std::all_of(layouts.begin(), layouts.end(), [&](const CacheLayout& layout) {
    if (!layout.is_ring()) return true;
    const int64_t first = layout.FirstKept(num_tokens);
    return first == num_tokens || first >= num_processed - layout.rows_per_slot;
  });
}

int64_t SnapshotBytes(const std::vector<CacheLayout>& layouts, const SnapshotRange& range) {
  return GrownBytes(layouts, range.from_tokens, range.num_tokens) + RingBytes(layouts, range.num_tokens);
}

StateSnapshot SnapshotState(const KvCache& cache, int32_t slot, const SnapshotRange& range) {
  const int64_t num_processed = range.num_processed < 0 ? range.num_tokens : range.num_processed;
  TSR_CHECK(range.from_tokens >= 0 && range.from_tokens <= range.num_tokens && range.num_tokens <= num_processed,
            "a snapshot of tokens {} to {} after {}", range.from_tokens, range.num_tokens, num_processed);
  TSR_CHECK(RingsHold(cache.layouts(), range.num_tokens, num_processed), "the rings after {} tokens do not hold the state after {}",
            num_processed, range.num_tokens);
  StateSnapshot snapshot{range.num_tokens, range.from_tokens, {}, {}};
  snapshot.grown.resize(static_cast<size_t>(GrownBytes(cache.layouts(), range.from_tokens, range.num_tokens)));
  snapshot.rings.resize(static_cast<size_t>(RingBytes(cache.layouts(), range.num_tokens)));
  Saved grown{snapshot.grown.data()}, rings{snapshot.rings.data()};
  ForGrownRows(cache, slot, range.from_tokens, range.num_tokens, [&](const uint8_t* row, size_t bytes) { grown.Take(row, bytes); });
  ForRingRows(cache, slot, range.num_tokens, [&](const uint8_t* row, size_t bytes) { rings.Take(row, bytes); });
  return snapshot;
}

void RestoreGrown(KvCache& cache, int32_t slot, const StateSnapshot& snapshot) {
  const int64_t expected = GrownBytes(cache.layouts(), snapshot.from_tokens, snapshot.num_tokens);
  TSR_CHECK(static_cast<int64_t>(snapshot.grown.size()) == expected, "a snapshot of {} bytes, these caches keep {}", snapshot.grown.size(),
            expected);
  Kept grown{snapshot.grown.data()};
  ForGrownRows(cache, slot, snapshot.from_tokens, snapshot.num_tokens, [&](uint8_t* row, size_t bytes) { grown.Put(row, bytes); });
}

void RestoreState(KvCache& cache, int32_t slot, const StateSnapshot& snapshot) {
  const int64_t expected = RingBytes(cache.layouts(), snapshot.num_tokens);
  TSR_CHECK(static_cast<int64_t>(snapshot.rings.size()) == expected, "a snapshot with {} bytes of rings, these caches keep {}",
            snapshot.rings.size(), expected);
  RestoreGrown(cache, slot, snapshot);
  Kept rings{snapshot.rings.data()};
  ForRingRows(cache, slot, snapshot.num_tokens, [&](uint8_t* row, size_t bytes) { rings.Put(row, bytes); });
}

void TrimSnapshot(const std::vector<CacheLayout>& layouts, int64_t from_tokens, StateSnapshot& snapshot) {
  TSR_CHECK(from_tokens >= snapshot.from_tokens && from_tokens <= snapshot.num_tokens, "tokens {} of a snapshot of {} to {}", from_tokens,
            snapshot.from_tokens, snapshot.num_tokens);
  // In place: forgetting bytes must not need memory.
  uint8_t* kept_end = snapshot.grown.data();
  const uint8_t* rows = snapshot.grown.data();
  for (const CacheLayout& layout : layouts) {
    if (layout.is_ring()) continue;
    const Range had = GrownRows(layout, snapshot.from_tokens, snapshot.num_tokens);
    const Range kept = GrownRows(layout, from_tokens, snapshot.num_tokens);
    const size_t kept_bytes = static_cast<size_t>((kept.end - kept.begin) * layout.row_bytes);
    if (kept_bytes > 0) std::memmove(kept_end, rows + (kept.begin - had.begin) * layout.row_bytes, kept_bytes);
    kept_end += kept_bytes;
    rows += (had.end - had.begin) * layout.row_bytes;
  }
  snapshot.grown.resize(static_cast<size_t>(kept_end - snapshot.grown.data()));
  snapshot.grown.shrink_to_fit();
  snapshot.from_tokens = from_tokens;
}

int64_t SequenceStateBytes(const std::vector<CacheLayout>& layouts, int64_t num_tokens) {
  int64_t bytes = 0;
  for (const CacheLayout& layout : layouts)
    bytes += layout.row_bytes * (layout.is_ring() ? std::min(num_tokens, layout.ring_tokens) : num_tokens / layout.ratio);
  return bytes;
}

double StateBytesPerToken(const std::vector<CacheLayout>& layouts) {
  double bytes = 0;
  for (const CacheLayout& layout : layouts)
    if (!layout.is_ring()) bytes += static_cast<double>(layout.row_bytes) / layout.ratio;
  return bytes;
}

}  // namespace tessera
