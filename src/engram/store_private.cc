#include "engram/store_private.h"

#include <utility>

#include "core/check.h"

namespace tessera {

PrivateStore::PrivateStore(std::vector<QuantView> tables) : tables_(std::move(tables)), issued_(tables_.size()) {
  for (const QuantView& table : tables_)
    TSR_CHECK(table.format == Format::kE4M3 && table.scales != nullptr && table.block_rows == 1, "an Engram table of another format");
}

void PrivateStore::Issue(int table_idx, View<const int64_t> row_ids) noexcept {
  issued_[table_idx] = row_ids;
  const QuantView& table = tables_[table_idx];
  // The rows are scattered over gigabytes: their first lines are asked for a whole model's depth before they are read.
  for (int64_t row = 0; row < row_ids.rows; ++row)
    for (int64_t column = 0; column < row_ids.cols; ++column) __builtin_prefetch(table.Row(row_ids.Row(row)[column]));
}

void PrivateStore::Wait(int) noexcept {}

StoredRow PrivateStore::Row(int table_idx, int64_t row_idx, int64_t column) const noexcept {
  const int64_t id = issued_[table_idx].Row(row_idx)[column];
  const QuantView& table = tables_[table_idx];
  return {table.Row(id), table.ScaleRow(id)};
}

}  // namespace tessera
