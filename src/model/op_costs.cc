#include "model/op_costs.h"

#include <algorithm>

namespace tessera {
namespace {

template <class T, class F>
OpCost ExpertsCost(const ExpertArguments<T>& arguments, F&& cost_of) noexcept {
  const Assignment& assignment = *arguments.assignment;
  OpCost cost = cost_of(*arguments.shared_expert, arguments.rows.size());
  for (int32_t i = 0; i < *assignment.num_active; ++i) {
    const int32_t expert_idx = assignment.active_experts[i];
    cost += cost_of(arguments.experts[expert_idx], assignment.first[expert_idx + 1] - assignment.first[expert_idx]);
  }
  return cost;
}

// Calls run(first, last): places of rows in the list that belong to one sequence, positions ascending.
template <class F>
void ForEachRun(const Step& step, RowList rows, F&& run) noexcept {
  for (int64_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    end = begin + 1;
    while (end < rows.size() && step.slot[rows[end]] == step.slot[rows[begin]]) ++end;
    run(begin, end - 1);
  }
}

}  // namespace

template <class T>
OpCost ExpertsUpCost(const ExpertArguments<T>& arguments) noexcept {
  return ExpertsCost(arguments, [](const ExpertWeights& expert, int64_t rows) {
    OpCost cost = MatMulCost(expert.w1, rows);
    cost += MatMulCost(expert.w3, rows);
    return cost;
  });
}

template <class T>
OpCost ExpertsDownCost(const ExpertArguments<T>& arguments) noexcept {
  return ExpertsCost(arguments, [](const ExpertWeights& expert, int64_t rows) { return MatMulCost(expert.w2, rows); });
}

OpCost IndexCost(const IndexerArguments& arguments) noexcept {
  const IndexerShape& shape = arguments.shape;
  const Step& step = *arguments.step;
  OpCost cost;
  ForEachRun(step, arguments.rows, [&](int64_t first, int64_t last) {
    int64_t scored = 0;
    for (int64_t i = first; i <= last; ++i) {
      const int64_t row = arguments.rows[i];
      const int64_t visible = (step.position[row] + 1) / shape.ratio;
      if (shape.SelectsAll(visible)) continue;
      scored += shape.role == CandidateRole::kRestrict ? std::min(visible, arguments.candidates.counts[row] * shape.block_size) : visible;
    }
    const int64_t keys = std::min(scored, (step.position[arguments.rows[last]] + 1) / shape.ratio);
    cost.bytes += keys * (arguments.key_codes.row_bytes + arguments.key_scales.row_bytes);
    cost.flops += 2 * scored * shape.num_heads * shape.head_dim;
  });
  return cost;
}

template <class T>
OpCost AttendCost(const SparseAttentionArguments<T>& arguments) noexcept {
  const Step& step = *arguments.step;
  OpCost cost;
  ForEachRun(step, arguments.rows, [&](int64_t first, int64_t last) {
    int64_t window_rows = 0, window_end = 0, window_seen = 0, entries_seen = 0;
    for (int64_t i = first; i <= last; ++i) {
      const int64_t row = arguments.rows[i], position = step.position[row];
      const int64_t begin = std::max<int64_t>(0, position - arguments.window_tokens + 1);
      window_rows += position + 1 - std::max(begin, window_end);
      window_end = position + 1;
      window_seen += position + 1 - begin;
      if (arguments.compressed.present())
        entries_seen += arguments.selected == nullptr ? (position + 1) / arguments.ratio : arguments.selected_counts[row];
    }
    cost.bytes += window_rows * arguments.window_layout.row_bytes;
    if (arguments.compressed.present())
      cost.bytes +=
          std::min(entries_seen, (step.position[arguments.rows[last]] + 1) / arguments.ratio) * arguments.compressed_layout.row_bytes;
    // Scores and weighted sum: two products of head_dim columns for every head and entry.
    cost.flops += 4 * (window_seen + entries_seen) * arguments.num_heads * arguments.window_layout.head_dim;
  });
  return cost;
}

template OpCost ExpertsUpCost<float>(const ExpertArguments<float>&) noexcept;
template OpCost ExpertsUpCost<bf16>(const ExpertArguments<bf16>&) noexcept;
template OpCost ExpertsDownCost<float>(const ExpertArguments<float>&) noexcept;
template OpCost ExpertsDownCost<bf16>(const ExpertArguments<bf16>&) noexcept;
template OpCost AttendCost<float>(const SparseAttentionArguments<float>&) noexcept;
template OpCost AttendCost<bf16>(const SparseAttentionArguments<bf16>&) noexcept;

}  // namespace tessera
