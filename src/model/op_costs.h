// What the ops of a forward pass cost (plan/plan.h): bytes of weights and caches that have to be read, each once a step however many rows
// use it, and 2 floating-point operations per multiply-add of the rows that really run.
#pragma once

#include "attention/indexer.h"
#include "attention/sparse_attention.h"
#include "core/quant_view.h"
#include "moe/experts.h"
#include "plan/plan.h"

namespace tessera {

inline OpCost MatMulCost(const QuantView& w, int64_t num_rows) {
  return num_rows == 0 ? OpCost{} : OpCost{w.ReadBytes(), 2 * num_rows * w.rows * w.cols};
}

// The shared expert and the routed experts that have rows.
template <class T>
OpCost ExpertsUpCost(const ExpertArguments<T>& arguments) noexcept;
template <class T>
OpCost ExpertsDownCost(const ExpertArguments<T>& arguments) noexcept;

// Keys of the rows that score. Rows of one sequence read the same keys: those of its last row count, at most as many as were scored.
OpCost IndexCost(const IndexerArguments& arguments) noexcept;

// Window rows and compressed entries; those that rows of one sequence share count once, of selected entries at most those visible.
template <class T>
OpCost AttendCost(const SparseAttentionArguments<T>& arguments) noexcept;

}  // namespace tessera
