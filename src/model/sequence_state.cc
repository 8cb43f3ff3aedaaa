#include "model/sequence_state.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace tessera {
namespace {

// Calls body(row address, row bytes) for every row that n tokens leave in a layout.
template <class F>
void ForEachRow(const KvCache& cache, int32_t slot, int64_t num_tokens, F&& body) {
  for (const CacheLayout& layout : cache.layouts()) {
    const RowStore store = cache.Store(layout.layer_idx, layout.kind);
    if (layout.ring_tokens > 0) {
      for (int64_t position = std::max<int64_t>(0, num_tokens - layout.ring_tokens); position < num_tokens; ++position)
        body(store.RingRow(slot, position), layout.row_bytes);
    } else if (num_tokens / layout.ratio > 0) {
      body(store.Slot(slot), num_tokens / layout.ratio * layout.row_bytes);
    }
  }
}

}  // namespace

StateSnapshot SnapshotState(const KvCache& cache, int32_t slot, int64_t num_tokens) {
  StateSnapshot snapshot{num_tokens, {}};
  snapshot.bytes.reserve(static_cast<size_t>(SequenceStateBytes(cache.layouts(), num_tokens)));
  ForEachRow(cache, slot, num_tokens,
             [&](const uint8_t* row, int64_t bytes) { snapshot.bytes.insert(snapshot.bytes.end(), row, row + bytes); });
  return snapshot;
}

void RestoreState(KvCache& cache, int32_t slot, const StateSnapshot& snapshot) {
  const int64_t expected = SequenceStateBytes(cache.layouts(), snapshot.num_tokens);
  TSR_CHECK(static_cast<int64_t>(snapshot.bytes.size()) == expected, "a snapshot of {} bytes, these caches keep {}", snapshot.bytes.size(),
            expected);
  size_t used = 0;
  ForEachRow(cache, slot, snapshot.num_tokens, [&](uint8_t* row, int64_t bytes) {
    std::memcpy(row, snapshot.bytes.data() + used, static_cast<size_t>(bytes));
    used += static_cast<size_t>(bytes);
  });
}

int64_t SequenceStateBytes(const std::vector<CacheLayout>& layouts, int64_t num_tokens) {
  int64_t bytes = 0;
  for (const CacheLayout& layout : layouts)
    bytes += layout.row_bytes * (layout.ring_tokens > 0 ? std::min(num_tokens, layout.ring_tokens) : num_tokens / layout.ratio);
  return bytes;
}

int64_t SequencePageBytes(const std::vector<CacheLayout>& layouts, int64_t num_tokens) {
  int64_t bytes = 0;
  for (const CacheLayout& layout : layouts) {
    const int64_t rows = layout.ring_tokens > 0 ? std::min(num_tokens, layout.rows_per_slot) : num_tokens / layout.ratio;
    bytes += (rows * layout.row_bytes + kCachePageBytes - 1) / kCachePageBytes * kCachePageBytes;
  }
  return bytes;
}

double StateBytesPerToken(const std::vector<CacheLayout>& layouts) {
  double bytes = 0;
  for (const CacheLayout& layout : layouts)
    if (layout.ring_tokens == 0) bytes += static_cast<double>(layout.row_bytes) / layout.ratio;
  return bytes;
}

}  // namespace tessera
