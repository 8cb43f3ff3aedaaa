// The second half of an index score, per tier: the relu-weighted sum over heads of the dots that the matrix product left.
#pragma once

#include "core/view.h"
#include "kernels/tier.h"

namespace tessera {

struct HeadSumCall {
  View<const float> dots;  // [num_heads, num_entries]
  const float* head_weights = nullptr;
  bool round = false;
  float* scores = nullptr;
};

TSR_DECLARE_TIERS(void SumHeads(const HeadSumCall& call) noexcept;)

}  // namespace tessera
