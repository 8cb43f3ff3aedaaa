// Which rows go to which expert, as data of a step: the (row, top-k slot) assignments sorted by expert, rows ascending inside one. An
// expert's rows are then contiguous in every buffer, and each expert's weights are read once a step.
#pragma once

#include <cstdint>

#include "core/arena.h"
#include "core/row_list.h"

namespace tessera {

struct Assignment {
  int num_experts = 0;
  int experts_per_row = 0;
  int32_t* num_active = nullptr;      // [1] experts with at least one row
  int32_t* active_experts = nullptr;  // [num_experts] ascending
  int32_t* first = nullptr;           // [num_experts + 1] first sorted position of each expert
  int32_t* row = nullptr;             // [max_rows * experts_per_row] row of a sorted position
  float* weight = nullptr;            // [max_rows * experts_per_row] its routing weight
  int32_t* position = nullptr;        // [max_rows * experts_per_row] sorted position of (row, slot); -1: no expert

  static Assignment Allocate(Arena& arena, int32_t max_rows, int num_experts, int experts_per_row);
  // Sorts expert_ids [max_rows, experts_per_row] (-1 = none) of the listed rows with their weights.
  void Sort(RowList rows, const int32_t* expert_ids, const float* weights) noexcept;
};

}  // namespace tessera
