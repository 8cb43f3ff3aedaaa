#include "attention/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/check.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; libc headers of that age lack the name
#endif

namespace tessera {
namespace {

int64_t WholePages(int64_t bytes) { return (bytes + kCachePageBytes - 1) / kCachePageBytes * kCachePageBytes; }

int64_t RangeBytes(const CacheLayout& layout) { return WholePages(layout.rows_per_slot * layout.row_bytes); }

int64_t SlotBytes(const std::vector<CacheLayout>& layouts) {
  int64_t bytes = kCachePageBytes;  // a model without caches still has slots
  for (const CacheLayout& layout : layouts) {
    TSR_CHECK(layout.rows_per_slot > 0 && layout.row_bytes > 0, "layer {}: {} rows of {} bytes", layout.layer_idx, layout.rows_per_slot,
              layout.row_bytes);
    bytes += RangeBytes(layout);
  }
  return bytes;
}

Dtype ElementsOf(CacheKind kind) {
  switch (kind) {
    case CacheKind::kPending:
    case CacheKind::kIndexPending:
      return Dtype::kF32;
    case CacheKind::kEngramHistory:
      return Dtype::kI32;
    default:
      return Dtype::kU8;  // codes and scales side by side
  }
}

// Makes [address, address + bytes) resident. Returns errno, 0 when done.
int PopulatePages(uint8_t* address, int64_t bytes) {
  if (madvise(address, static_cast<size_t>(bytes), MADV_POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL) return errno;
  // A kernel older than 5.14: a write of what is there faults each page in.
  for (volatile uint8_t* page = address; page < address + bytes; page += kCachePageBytes) *page = *page;
  return 0;
}

}  // namespace

const char* CacheKindName(CacheKind kind) {
  switch (kind) {
    case CacheKind::kWindow:
      return "window";
    case CacheKind::kCompressed:
      return "compressed";
    case CacheKind::kIndexCodes:
      return "index codes";
    case CacheKind::kIndexScales:
      return "index scales";
    case CacheKind::kPending:
      return "pending";
    case CacheKind::kIndexPending:
      return "index pending";
    case CacheKind::kEngramHistory:
      return "Engram history";
  }
  return "?";
}

int64_t CacheLayout::FirstKept(int64_t num_tokens) const {
  const int64_t complete = ratio > 1 ? num_tokens / ratio * ratio : num_tokens;
  const int64_t before = ratio > 1 ? ring_tokens - ratio : ring_tokens;
  return std::max<int64_t>(0, complete - before);
}

int64_t CacheLayout::RowsTouched(int64_t num_tokens) const {
  return std::min(rows_per_slot, is_ring() ? num_tokens : num_tokens / ratio);
}

int64_t ResidentBytes(const std::vector<CacheLayout>& layouts, int64_t num_tokens) {
  int64_t bytes = 0;
  for (const CacheLayout& layout : layouts) bytes += WholePages(layout.RowsTouched(num_tokens) * layout.row_bytes);
  return bytes;
}

KvCache::KvCache(const std::vector<CacheLayout>& layouts, int32_t num_slots)
    : layouts_(layouts),
      num_slots_(num_slots),
      slot_bytes_(SlotBytes(layouts)),
      arena_("sequence caches", static_cast<size_t>(slot_bytes_) * static_cast<size_t>(num_slots)),
      populated_tokens_(static_cast<size_t>(num_slots), 0) {
  uint8_t* root = arena_.Allocate<uint8_t>(slot_bytes_ * num_slots);
  arena_.Seal();
  // Huge pages would make 2 MB resident where a range holds a few rows, and what is resident would not be what admission counted.
  // A kernel without them refuses the advice, which is as good.
  madvise(root, static_cast<size_t>(slot_bytes_) * static_cast<size_t>(num_slots), MADV_NOHUGEPAGE);
  recipes_.AddRoot(root, slot_bytes_ * num_slots);
  int64_t offset = 0;
  for (const CacheLayout& layout : layouts_) {
    const Dtype dtype = ElementsOf(layout.kind);
    TSR_CHECK(layout.row_bytes % DtypeBytes(dtype) == 0, "layer {}: rows of {} bytes", layout.layer_idx, layout.row_bytes);
    const ShapedView view{root + offset,
                          {num_slots, layout.rows_per_slot, layout.row_bytes / DtypeBytes(dtype)},
                          {slot_bytes_, layout.row_bytes, DtypeBytes(dtype)},
                          dtype};
    recipes_.Record(fmt::format("layer {} {}", layout.layer_idx, CacheKindName(layout.kind)), view);
    stores_.push_back({view.address, layout.rows_per_slot, layout.row_bytes, slot_bytes_});
    offset += RangeBytes(layout);
  }
}

RowStore KvCache::Store(int layer_idx, CacheKind kind) const {
  for (size_t i = 0; i < layouts_.size(); ++i)
    if (layouts_[i].layer_idx == layer_idx && layouts_[i].kind == kind) return stores_[i];
  return {};
}

void KvCache::Populate(int32_t slot, int64_t num_tokens) {
  TSR_CHECK(slot >= 0 && slot < num_slots_, "slot {} of {}", slot, num_slots_);
  int64_t& done = populated_tokens_[static_cast<size_t>(slot)];
  if (num_tokens <= done) return;
  for (size_t i = 0; i < layouts_.size(); ++i) {
    const int64_t begin = WholePages(layouts_[i].RowsTouched(done) * layouts_[i].row_bytes);
    const int64_t end = WholePages(layouts_[i].RowsTouched(num_tokens) * layouts_[i].row_bytes);
    if (begin == end) continue;
    const int error = PopulatePages(stores_[i].Slot(slot) + begin, end - begin);
    if (error != 0)
      Fail("no memory for the caches of this sequence: {} bytes for tokens {} to {}, {} bytes of them for layer {} {}: {}",
           ResidentBytes(layouts_, num_tokens) - ResidentBytes(layouts_, done), done, num_tokens, end - begin, layouts_[i].layer_idx,
           CacheKindName(layouts_[i].kind), std::strerror(error));
  }
  done = num_tokens;
}

void KvCache::Release(int32_t slot) {
  TSR_CHECK(slot >= 0 && slot < num_slots_, "slot {} of {}", slot, num_slots_);
  madvise(arena_.base() + slot * slot_bytes_, static_cast<size_t>(slot_bytes_), MADV_DONTNEED);
  populated_tokens_[static_cast<size_t>(slot)] = 0;
}

}  // namespace tessera
