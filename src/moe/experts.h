// The experts' two matrix products over the rows assigned to them. Every worker owns the same slice of output rows of every expert on every
// step, so the load is even whatever the routing, and a worker meets the same weight rows again.
#pragma once

#include <cstdint>

#include "core/quant_view.h"
#include "core/row_list.h"
#include "core/threads.h"
#include "core/view.h"
#include "moe/assignment.h"

namespace tessera {

struct ExpertWeights {
  QuantView w1, w3;  // gate, up [moe_intermediate_size, hidden]
  QuantView w2;      // down [hidden, moe_intermediate_size]
};

template <class T>
struct ExpertArguments {
  RowList rows;
  const Assignment* assignment = nullptr;
  const ExpertWeights* experts = nullptr;        // [num_experts]
  const ExpertWeights* shared_expert = nullptr;  // runs on every row with weight 1
  float swiglu_limit = 0;
  View<const T> x;        // [max_rows, hidden] the layer's input
  View<T> hidden;         // [max_rows * experts_per_row, moe_intermediate_size] by sorted position
  View<T> shared_hidden;  // [max_rows, moe_intermediate_size] by place in `rows`
  View<T> out;            // [max_rows * experts_per_row, hidden] by sorted position
  View<T> shared_out;     // [max_rows, hidden]
};

template <class T>
int64_t ExpertScratchBytes(int64_t max_rows, int64_t hidden_size, int64_t intermediate_size);

// First op: hidden = T(weight * silu(w1 x) * (w3 x)) with the clamps, for routed and shared experts.
template <class T>
void ExpertsUp(const ExpertArguments<T>& arguments, const WorkerContext& worker) noexcept;
// Second op: out = w2 hidden.
template <class T>
void ExpertsDown(const ExpertArguments<T>& arguments, const WorkerContext& worker) noexcept;

// y = T(sum of the row's routed results in ascending expert id + the shared result), fp32 inside; columns [columns.begin, columns.end) into
// y[0...].
template <class T>
void CombineExperts(const ExpertArguments<T>& arguments, int64_t row, Range columns, T* y) noexcept;

}  // namespace tessera
