// The memory of all per-sequence caches. Each (slot, layer, kind) is one contiguous range of rows inside one root reservation, so that
// scans stream; the reservation is address space only, pages are paid for as rows are written and given back when a slot is released.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arena.h"

namespace tessera {

enum class CacheKind : uint8_t {
  kWindow,         // ring of kv rows, one per position modulo its rows
  kCompressed,     // one row per compressed entry
  kIndexCodes,     // one row per entry: index_head_dim / 2 bytes
  kIndexScales,    // one row per entry: one byte per 32 columns
  kPending,        // fp32 compressor inputs of the last tokens, ring by position: values, then logits
  kIndexPending,   // the same of the V4 indexer's compressor
  kEngramHistory,  // int32 compressed ids, ring by position
};

// Rows of one (layer, kind) over all slots.
struct RowStore {
  uint8_t* base = nullptr;
  int64_t rows_per_slot = 0;
  int64_t row_bytes = 0;
  int64_t slot_bytes = 0;

  bool present() const { return base != nullptr; }
  uint8_t* Slot(int32_t slot) const { return base + slot * slot_bytes; }
  uint8_t* Row(int32_t slot, int64_t row_idx) const { return Slot(slot) + row_idx * row_bytes; }
  // Rings: the row of an absolute position.
  uint8_t* RingRow(int32_t slot, int64_t position) const { return Row(slot, position % rows_per_slot); }
};

struct CacheLayout {
  int layer_idx = 0;
  CacheKind kind = CacheKind::kWindow;
  int64_t rows_per_slot = 0;
  int64_t row_bytes = 0;
  // What a sequence of n tokens has in it: the rows of its last `ring_tokens` positions, or, where that is 0, n / ratio rows from the
  // start.
  int64_t ring_tokens = 0;
  int ratio = 1;
};

// Every range of a slot begins on a page, so that a sequence pays for whole pages of its own.
constexpr int64_t kCachePageBytes = 4096;

class KvCache {
 public:
  // Reserves (num_slots) times every range of `layouts`. Throws Error when the host refuses the address space.
  KvCache(const std::vector<CacheLayout>& layouts, int32_t num_slots);

  // The store of (layer, kind); not present() when the layer has none.
  RowStore Store(int layer_idx, CacheKind kind) const;
  // Gives the slot's pages back to the host; its rows read as zero afterwards.
  void Release(int32_t slot);

  const std::vector<CacheLayout>& layouts() const { return layouts_; }
  int32_t num_slots() const { return num_slots_; }
  size_t reserved_bytes() const { return arena_.used_bytes(); }

 private:
  std::vector<CacheLayout> layouts_;
  std::vector<RowStore> stores_;  // parallel to layouts_
  int32_t num_slots_;
  Arena arena_;
};

}  // namespace tessera
