// The memory of all per-sequence caches: one reservation, [slots, slot bytes]. Each (layer, kind) is a column slice of it, so that each
// (slot, layer, kind) is one contiguous, page-aligned range of rows and scans stream. The reservation is address space only. Pages are made
// resident ahead of the rows that will be written (Populate), between steps, so that a replay faults none, and given back when a slot is
// released.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/view_recipe.h"
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
const char* CacheKindName(CacheKind kind);

// Rows of one (layer, kind) over all slots.
struct RowStore {
  uint8_t* base = nullptr;
  int64_t rows_per_slot = 0;
  int64_t row_bytes = 0;
  int64_t slot_bytes = 0;  // from one slot's rows to the next slot's

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
  // start. A ring with a ratio above 1 waits for whole entries: it needs the tokens behind the last complete one, and before them the
  // ring_tokens - ratio that the next entry pools again.
  int64_t ring_tokens = 0;
  int ratio = 1;

  bool is_ring() const { return ring_tokens > 0; }
  // Rings: the first position whose row the next token needs after `num_tokens`; num_tokens when it needs none.
  int64_t FirstKept(int64_t num_tokens) const;
  // Rows [0, RowsTouched(n)) of a slot are those that n tokens write.
  int64_t RowsTouched(int64_t num_tokens) const;
};

// Every range of a slot begins on a page, so that a sequence pays for whole pages of its own.
constexpr int64_t kCachePageBytes = 4096;

// Bytes of pages that the first `num_tokens` tokens of a sequence make resident, exactly.
int64_t ResidentBytes(const std::vector<CacheLayout>& layouts, int64_t num_tokens);

class KvCache {
 public:
  // Reserves (num_slots) times every range of `layouts`. Throws Error when the host refuses the address space.
  KvCache(const std::vector<CacheLayout>& layouts, int32_t num_slots);

  // The store of (layer, kind); not present() when the layer has none.
  RowStore Store(int layer_idx, CacheKind kind) const;

  // Makes resident every page that the first `num_tokens` tokens of the sequence in `slot` write, what they hold unchanged. Costs nothing
  // where that was done before; tokens beyond the rows of a slot are left out. Never during a replay. Throws Error with the bytes asked
  // for when the host has no memory left; the slot must then be released.
  void Populate(int32_t slot, int64_t num_tokens);
  // Tokens that Populate has prepared the slot for since it was released.
  int64_t populated_tokens(int32_t slot) const { return populated_tokens_[static_cast<size_t>(slot)]; }
  // Gives the slot's pages back to the host; its rows read as zero afterwards.
  void Release(int32_t slot);

  const std::vector<CacheLayout>& layouts() const { return layouts_; }
  int32_t num_slots() const { return num_slots_; }
  size_t reserved_bytes() const { return arena_.used_bytes(); }
  // One recipe per layout, in their order: [slots, rows_per_slot, elements of a row].
  const ViewRecipes& recipes() const { return recipes_; }

 private:
  std::vector<CacheLayout> layouts_;
  std::vector<RowStore> stores_;  // parallel to layouts_
  int32_t num_slots_;
  int64_t slot_bytes_;
  Arena arena_;
  ViewRecipes recipes_;
  std::vector<int64_t> populated_tokens_;  // by slot
};

}  // namespace tessera
