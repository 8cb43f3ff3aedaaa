// The router: scores of a row's experts, the choice of top-k, and the routing weights (spec/model.md sections 7.1 to 7.3).
#pragma once

#include <cstdint>

#include "core/step.h"
#include "core/threads.h"
#include "core/view.h"

namespace tessera {

constexpr int kExpertsPerTokenMax = 64;  // the config check keeps num_experts_per_tok at it or below

struct RouterArguments {
  const Step* step = nullptr;
  RowList rows;
  View<float> scores;  // [max_rows, num_experts] in: the gate's logits; out: sqrt(softplus(logit))
  int num_experts_per_tok = 0;
  const float* bias = nullptr;       // [num_experts], only selects; null on hash-routed layers
  const uint8_t* tid2eid = nullptr;  // I64 [vocab_size, num_experts_per_tok], unaligned; hash-routed layers
  float sum_epsilon = 0;             // added to the sum of scores: 0 (V4) or 1e-20 (V4.1)
  float scaling_factor = 1;
  int32_t* expert_ids = nullptr;  // out [max_rows, num_experts_per_tok] ascending; -1: no expert (below)
  float* weights = nullptr;       // out, in the same order; 0 where the id is -1
};

// Padding rows, rows with fewer finite scores than they need and hashed rows that name an expert out of range have no experts. An expert
// that a hashed row names twice runs once with both weights, and the second place is empty: no expert ever has more rows than the step.
void RouteRows(const RouterArguments& arguments, const WorkerContext& worker) noexcept;

}  // namespace tessera
