// All state of a sequence, saved and put back: window rows, compressed entries, index keys, pending compressor rows, Engram history. What a
// layout keeps for n tokens is written in it (CacheLayout), so nothing can be forgotten here. A restored sequence goes on with the same
// bits.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/kv_cache.h"

namespace tessera {

struct StateSnapshot {
  int64_t num_tokens = 0;
  std::vector<uint8_t> bytes;  // layout after layout, rows ascending
};

// Copies what the sequence in `slot` keeps after `num_tokens` tokens.
StateSnapshot SnapshotState(const KvCache& cache, int32_t slot, int64_t num_tokens);
// Puts a snapshot into any slot of a cache with the same layouts; aborts when its size does not fit them.
void RestoreState(KvCache& cache, int32_t slot, const StateSnapshot& snapshot);

// Bytes of what a sequence of `num_tokens` tokens keeps: the size of its snapshot.
int64_t SequenceStateBytes(const std::vector<CacheLayout>& layouts, int64_t num_tokens);
// Bytes of memory that it has touched by then, in whole pages: what admission accounts. A ring is paid in full once the sequence has gone
// around it, although it keeps only the last rows of it.
int64_t SequencePageBytes(const std::vector<CacheLayout>& layouts, int64_t num_tokens);
// Bytes by which the state grows with every further token, on average: rings do not grow.
double StateBytesPerToken(const std::vector<CacheLayout>& layouts);

}  // namespace tessera
