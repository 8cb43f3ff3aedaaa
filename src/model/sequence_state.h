// All state of a sequence, saved and put back: window rows, compressed entries, index keys, pending compressor rows, Engram history. What a
// layout keeps for n tokens is written in it (CacheLayout), so nothing can be forgotten here. A restored sequence goes on with the same
// bits. A snapshot may be the difference to an earlier one of the same tokens: rows that only grow are then those added since, rings are
// whole.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/kv_cache.h"

namespace tessera {

struct SnapshotRange {
  int64_t num_tokens = 0;      // the state after so many tokens
  int64_t from_tokens = 0;     // grown rows of these first tokens are left out
  int64_t num_processed = -1;  // tokens the slot has processed by now; -1: num_tokens
};

struct StateSnapshot {
  int64_t num_tokens = 0;
  int64_t from_tokens = 0;
  std::vector<uint8_t> grown;  // compressed entries and index keys, layout after layout, rows ascending
  std::vector<uint8_t> rings;  // the rows that the next tokens need, the same way

  int64_t bytes() const { return static_cast<int64_t>(grown.size() + rings.size()); }
};

// The rings of a slot that has processed `num_processed` tokens still hold all that the state after `num_tokens` needs.
bool RingsHold(const std::vector<CacheLayout>& layouts, int64_t num_tokens, int64_t num_processed);
// Bytes of the snapshot of a range.
int64_t SnapshotBytes(const std::vector<CacheLayout>& layouts, const SnapshotRange& range);

// Copies the state of the sequence in `slot`; aborts when the rings do not hold it any more.
StateSnapshot SnapshotState(const KvCache& cache, int32_t slot, const SnapshotRange& range);
// Puts a snapshot into any slot of a cache with the same layouts; aborts when its size does not fit them. The grown rows before
// from_tokens must be there already (RestoreGrown of the snapshots before it).
void RestoreState(KvCache& cache, int32_t slot, const StateSnapshot& snapshot);
// The grown rows alone.
void RestoreGrown(KvCache& cache, int32_t slot, const StateSnapshot& snapshot);
// Drops the grown rows of the first `from_tokens` tokens.
void TrimSnapshot(const std::vector<CacheLayout>& layouts, int64_t from_tokens, StateSnapshot& snapshot);

// Bytes of rows that a sequence of `num_tokens` tokens keeps, rings counted as full: what `inspect` prints. What it makes resident is
// ResidentBytes (attention/kv_cache.h).
int64_t SequenceStateBytes(const std::vector<CacheLayout>& layouts, int64_t num_tokens);
// Bytes by which the state grows with every further token, on average: rings do not grow.
double StateBytesPerToken(const std::vector<CacheLayout>& layouts);

}  // namespace tessera
