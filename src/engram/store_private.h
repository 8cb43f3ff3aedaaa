// The tables mapped by this process alone: a row is read from the checkpoint's mapping when it is needed.
#pragma once

#include <vector>

#include "core/quant_view.h"
#include "engram/store.h"

namespace tessera {

class PrivateStore : public Store {
 public:
  // tables[i]: E4M3 [rows, engram_head_dim] with block 1 x 32; the mapping must outlive the store.
  explicit PrivateStore(std::vector<QuantView> tables);

  void Issue(int table_idx, View<const int64_t> row_ids) noexcept override;
  void Wait(int table_idx) noexcept override;
  StoredRow Row(int table_idx, int64_t row_idx, int64_t column) const noexcept override;

 private:
  std::vector<QuantView> tables_;
  std::vector<View<const int64_t>> issued_;
};

}  // namespace tessera
