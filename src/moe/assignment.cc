#include "moe/assignment.h"

#include <algorithm>

namespace tessera {

Assignment Assignment::Allocate(Arena& arena, int32_t max_rows, int num_experts, int experts_per_row) {
  Assignment assignment;
  assignment.num_experts = num_experts;
  assignment.experts_per_row = experts_per_row;
  assignment.num_active = arena.Allocate<int32_t>(1);
  assignment.active_experts = arena.Allocate<int32_t>(num_experts);
  assignment.first = arena.Allocate<int32_t>(num_experts + 1);
  assignment.row = arena.Allocate<int32_t>(int64_t{max_rows} * experts_per_row);
  assignment.weight = arena.Allocate<float>(int64_t{max_rows} * experts_per_row);
  assignment.position = arena.Allocate<int32_t>(int64_t{max_rows} * experts_per_row);
  return assignment;
}

void Assignment::Sort(RowList rows, const int32_t* expert_ids, const float* weights) noexcept {
  const int64_t count = rows.size();
  std::fill_n(first, num_experts + 1, 0);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t* ids = expert_ids + rows[i] * experts_per_row;
    for (int slot = 0; slot < experts_per_row; ++slot)
      if (ids[slot] >= 0) ++first[ids[slot] + 1];
  }
  *num_active = 0;
  for (int expert = 0; expert < num_experts; ++expert) {
    if (first[expert + 1] > 0) active_experts[(*num_active)++] = expert;
    first[expert + 1] += first[expert];
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = rows[i] * experts_per_row;
    for (int64_t item = begin; item < begin + experts_per_row; ++item) {
      const int32_t expert = expert_ids[item];
      position[item] = -1;
      if (expert < 0) continue;
      const int32_t place = first[expert]++;  // first[e] runs to the start of e + 1 and is shifted back below
      position[item] = place;
      row[place] = static_cast<int32_t>(rows[i]);
      weight[place] = weights[item];
    }
  }
  for (int expert = num_experts; expert > 0; --expert) first[expert] = first[expert - 1];
  first[0] = 0;
}

}  // namespace tessera
