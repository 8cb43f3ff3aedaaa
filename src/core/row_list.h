// Which rows of a step an op works on. The lists are data: a plan holds their addresses and reads them at every replay. All lists of one
// step are nested, so two of equal length hold the same rows.
#pragma once

#include <cstdint>

namespace tessera {

struct RowList {
  const int32_t* rows = nullptr;   // ascending [*count]; null: 0, 1, ... *count - 1
  const int32_t* count = nullptr;

  int64_t size() const { return *count; }
  int64_t operator[](int64_t i) const { return rows == nullptr ? i : rows[i]; }
  // From element `first` on, as the indices of a kernel; null when they are the identity from 0.
  const int32_t* From(int64_t first) const { return rows == nullptr ? nullptr : rows + first; }
};

}  // namespace tessera
