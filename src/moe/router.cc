#include "moe/router.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/swiglu.h"

namespace tessera {
namespace {

// The `k` best experts of a row by score + bias, ties to the lower id. False when fewer than k are finite.
bool SelectExperts(const float* scores, const float* bias, int64_t num_experts, int k, int32_t* ids) noexcept {
  float best[kExpertsPerTokenMax];
  int count = 0;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    const float value = scores[expert] + bias[expert];
    if (!(value > -INFINITY)) continue;
    if (count == k && !(value > best[k - 1])) continue;
    int place = count < k ? count++ : k - 1;
    for (; place > 0 && value > best[place - 1]; --place) {
      best[place] = best[place - 1];
      ids[place] = ids[place - 1];
    }
    best[place] = value;
    ids[place] = static_cast<int32_t>(expert);
  }
  return count == k;
}

bool HashExperts(const uint8_t* tid2eid, int32_t token_id, int64_t num_experts, int k, int32_t* ids) noexcept {
  for (int i = 0; i < k; ++i) {
    int64_t id;
    std::memcpy(&id, tid2eid + (int64_t{token_id} * k + i) * 8, 8);
    if (id < 0 || id >= num_experts) return false;
    ids[i] = static_cast<int32_t>(id);
  }
  return true;
}

// Gives the weight of a repeated expert (ids ascend) to its first place and empties the others.
void MergeRepeated(int k, int32_t* ids, float* weights) noexcept {
  for (int i = 1, first = 0; i < k; ++i) {
    if (ids[i] != ids[first]) {
      first = i;
      continue;
    }
    weights[first] += weights[i];
    ids[i] = -1;
    weights[i] = 0;
  }
}

}  // namespace

void RouteRows(const RouterArguments& arguments, const WorkerContext& worker) noexcept {
  const Step& step = *arguments.step;
  const int k = arguments.num_experts_per_tok;
  const int64_t num_experts = arguments.scores.cols;
  const Range mine = worker.PartOf(arguments.rows.size());
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    const int64_t row = arguments.rows[i];
    float* scores = arguments.scores.Row(row);
    int32_t* ids = arguments.expert_ids + row * k;
    float* weights = arguments.weights + row * k;
    SqrtSoftplus(scores, num_experts, scores);
    bool found = step.valid[row] != 0;
    if (found)
      found = arguments.tid2eid != nullptr ? HashExperts(arguments.tid2eid, step.token_id[row], num_experts, k, ids)
                                           : SelectExperts(scores, arguments.bias, num_experts, k, ids);
    if (!found) {
      std::fill_n(ids, k, -1);
      std::fill_n(weights, k, 0.0f);
      continue;
    }
    std::sort(ids, ids + k);
    float sum = 0;
    for (int slot = 0; slot < k; ++slot) sum += scores[ids[slot]];
    for (int slot = 0; slot < k; ++slot) weights[slot] = scores[ids[slot]] / (sum + arguments.sum_epsilon) * arguments.scaling_factor;
    if (arguments.tid2eid != nullptr) MergeRepeated(k, ids, weights);
  }
}

}  // namespace tessera
