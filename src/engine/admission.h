// The bytes of caches that sequences may fill together. A sequence is admitted with all it may need by its end, so a running one is never
// put aside for want of memory; pages are paid for as they are touched and given back when it ends.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/kv_cache.h"
#include "core/memory_report.h"

namespace tessera {

// What the budget is made of, when it is the host's memory that decides.
struct CacheDemand {
  int64_t bytes_per_sequence = 0;  // of the longest sequence
  int32_t max_seqs = 1;            // more than this many longest sequences can use is not taken
  int64_t other_bytes = 0;         // what the process is going to need beside the caches: weights, activations, scratch
};
// The room that is left, less a margin of a sixteenth for everything else on the host; at least one longest sequence, at most all of them.
int64_t ChooseCacheBudget(const CacheDemand& demand, const AvailableMemory& available);

class Admission {
 public:
  Admission(std::vector<CacheLayout> layouts, int64_t budget_bytes);

  // Bytes a sequence of this many tokens fills, in whole pages.
  int64_t BytesFor(int64_t num_tokens) const;
  double bytes_per_token() const;
  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t free_bytes() const { return budget_bytes_ - reserved_bytes_; }
  // Pairs; abort when they do not balance.
  void Reserve(int64_t bytes);
  void Return(int64_t bytes);

 private:
  std::vector<CacheLayout> layouts_;
  int64_t budget_bytes_;
  int64_t reserved_bytes_ = 0;
};

}  // namespace tessera
