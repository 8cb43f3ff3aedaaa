#include "attention/kv_cache.h"

#include <sys/mman.h>

#include "core/check.h"

namespace tessera {
namespace {

int64_t SlotBytes(const CacheLayout& layout) {
  return (layout.rows_per_slot * layout.row_bytes + kCachePageBytes - 1) / kCachePageBytes * kCachePageBytes;
}

size_t TotalBytes(const std::vector<CacheLayout>& layouts, int32_t num_slots) {
  size_t bytes = kCachePageBytes;
  for (const CacheLayout& layout : layouts) bytes += static_cast<size_t>(SlotBytes(layout)) * static_cast<size_t>(num_slots);
  return bytes;
}

}  // namespace

KvCache::KvCache(const std::vector<CacheLayout>& layouts, int32_t num_slots)
    : layouts_(layouts), num_slots_(num_slots), arena_("sequence caches", TotalBytes(layouts, num_slots)) {
  for (const CacheLayout& layout : layouts_) {
    TSR_CHECK(layout.rows_per_slot > 0 && layout.row_bytes > 0, "layer {}: {} rows of {} bytes", layout.layer_idx, layout.rows_per_slot,
              layout.row_bytes);
    const int64_t slot_bytes = SlotBytes(layout);
    uint8_t* base = arena_.Allocate<uint8_t>(slot_bytes * num_slots);
    stores_.push_back({base, layout.rows_per_slot, layout.row_bytes, slot_bytes});
  }
  arena_.Seal();
}

RowStore KvCache::Store(int layer_idx, CacheKind kind) const {
  for (size_t i = 0; i < layouts_.size(); ++i)
    if (layouts_[i].layer_idx == layer_idx && layouts_[i].kind == kind) return stores_[i];
  return {};
}

void KvCache::Release(int32_t slot) {
  TSR_CHECK(slot >= 0 && slot < num_slots_, "slot {} of {}", slot, num_slots_);
  for (const RowStore& store : stores_) madvise(store.Slot(slot), static_cast<size_t>(store.slot_bytes), MADV_DONTNEED);
}

}  // namespace tessera
