// Where the rows of the Engram tables come from. Addresses depend on token ids alone, so all rows of a step are issued before layer 0 runs
// and waited for where they are needed. Every placement gives the same bytes.
#pragma once

#include <cstdint>

#include "core/view.h"

namespace tessera {

// One table row where it lies until the next Issue for that table: e4m3 codes [engram_head_dim] and E8M0 scales, one per 32 columns.
struct StoredRow {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
};

class Store {
 public:
  virtual ~Store() = default;
  // Both are called by one worker while the others wait for the op to end. row_ids: [num_rows, columns] of one table.
  virtual void Issue(int table_idx, View<const int64_t> row_ids) noexcept = 0;
  virtual void Wait(int table_idx) noexcept = 0;
  // The row that was issued at (row_idx, column); any worker, after Wait.
  virtual StoredRow Row(int table_idx, int64_t row_idx, int64_t column) const noexcept = 0;
};

}  // namespace tessera
