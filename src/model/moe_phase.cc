// The mixture of experts of a layer (spec/model.md section 7), from the normed input to the updated streams.
#include <algorithm>

#include "kernels/convert.h"
#include "kernels/hyper_connection.h"
#include "model/forward_builder.h"
#include "model/op_costs.h"
#include "moe/router.h"

namespace tessera {

template <class T>
void ForwardBuilder<T>::Moe(int layer_idx, const HcCoefficients* coefficients) {
  const LayerWeights& w = layer(layer_idx);
  const RowList rows = Passing(layer_idx);

  // Router: logits in fp32 from the unquantised input, choice and weights, rows sorted by expert.
  EmitLinears<T>(builder_, kRegionRouter, rows_, {{rows, w.gate, a_.x, {}, a_.router_scores}});
  Gather();
  RouterArguments router;
  router.step = step_;
  router.rows = rows;
  router.scores = a_.router_scores;
  router.num_experts_per_tok = config_.num_experts_per_tok;
  router.bias = w.gate_bias;
  router.tid2eid = w.tid2eid;
  router.sum_epsilon = v41_ ? 1e-20f : 0.0f;
  router.scaling_factor = config_.routed_scaling_factor;
  router.expert_ids = a_.expert_ids;
  router.weights = a_.expert_weights;
  builder_.Add(kRegionRouter, [router](const WorkerContext& worker) noexcept { RouteRows(router, worker); });
  Assignment* assignment = a_.assignment;
  builder_.Add(kRegionRouter, [=](const WorkerContext& worker) noexcept {
    if (worker.worker_idx == 0) assignment->Sort(rows, router.expert_ids, router.weights);
  });

  // Experts: each one's weights are read once for all its rows.
  ExpertArguments<T> experts;
  experts.rows = rows;
  experts.assignment = a_.assignment;
  experts.experts = w.experts.data();
  experts.shared_expert = &w.shared_expert;
  experts.swiglu_limit = config_.swiglu_limit;
  experts.x = QuantizedInput(kRegionExperts, rows, a_.x);
  experts.hidden = a_.hidden;
  experts.shared_hidden = a_.shared_hidden;
  experts.out = a_.expert_out;
  experts.shared_out = a_.shared_out;
  builder_.RequireScratch(
      static_cast<size_t>(ExpertScratchBytes<T>(rows_, config_.hidden_size, config_.moe_intermediate_size * config_.n_shared_experts)));
  builder_.Add(
      kRegionExperts, [experts](const WorkerContext& worker) noexcept { ExpertsUp<T>(experts, worker); },
      [experts]() noexcept { return ExpertsUpCost(experts); });
  if (reference_) {
    const int64_t block = config_.activation_block();
    builder_.Add(kRegionExperts, [=](const WorkerContext& worker) noexcept {
      const Range routed = worker.PartOf(assignment->first[assignment->num_experts]);
      for (int64_t i = routed.begin; i < routed.end; ++i) FakeQuantizeQ8(experts.hidden.Row(i), experts.hidden.cols, block);
      const Range shared = worker.PartOf(rows.size());
      for (int64_t i = shared.begin; i < shared.end; ++i)
        FakeQuantizeQ8(experts.shared_hidden.Row(i), experts.shared_hidden.cols, block);
    });
  }
  builder_.Add(
      kRegionExperts, [experts](const WorkerContext& worker) noexcept { ExpertsDown<T>(experts, worker); },
      [experts]() noexcept { return ExpertsDownCost(experts); });
  Gather();
  EmitCombine(rows, experts, coefficients);
}

template <class T>
void ForwardBuilder<T>::EmitCombine(RowList rows, const ExpertArguments<T>& experts, const HcCoefficients* coefficients) {
  // Combine and expand, column range by column range: no buffer between them.
  const View<T> streams = a_.streams;
  const int hc_mult = config_.hc_mult;
  const int64_t hidden = config_.hidden_size;
  builder_.RequireScratch(static_cast<size_t>(hidden) * sizeof(T));
  builder_.Add(kRegionCombine, [=](const WorkerContext& worker) noexcept {
    T* y = reinterpret_cast<T*>(worker.scratch);
    const int64_t parts = PartsPerRow(rows.size(), worker.num_workers);
    const Range items = worker.PartOf(rows.size() * parts);
    for (int64_t item = items.begin; item < items.end; ++item) {
      const int64_t row = rows[item / parts];
      const Range columns = PartOf(hidden, static_cast<int>(item % parts), static_cast<int>(parts), 64);
      CombineExperts<T>(experts, row, columns, y);
      HcExpand(y, coefficients[row], hc_mult, columns.end - columns.begin, streams.Row(row) + columns.begin,
               hidden);
    }
  });
}

template void ForwardBuilder<float>::Moe(int, const HcCoefficients*);
template void ForwardBuilder<bf16>::Moe(int, const HcCoefficients*);
template void ForwardBuilder<float>::EmitCombine(RowList, const ExpertArguments<float>&, const HcCoefficients*);
template void ForwardBuilder<bf16>::EmitCombine(RowList, const ExpertArguments<bf16>&, const HcCoefficients*);

}  // namespace tessera
