// Teacher-forced evaluation: the logits of every position of a list of ids, computed in chunks and, from a position on, token by token. How
// the list is cut must not change a bit.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/step_runner.h"

namespace tessera {

struct EvaluateOptions {
  int32_t chunk_rows = 0;    // rows a prefill step takes; 0: the prefill bucket
  int64_t decode_from = -1;  // tokens from this position on go one by one; -1: none
};

// Called after every step with the rows [first, first + logits.rows) of the list; `record` is null unless layers are recorded.
using EvaluateSink = std::function<void(int64_t first, View<const float> logits, const StepRecord* record)>;

// Runs `ids` in slot 0 of a fresh state. Throws Error when an id is outside the vocabulary or the list exceeds the context.
void Evaluate(StepRunner& runner, std::span<const int32_t> ids, const EvaluateOptions& options, const EvaluateSink& sink);

// Sum over i >= 1 of -ln p(ids[i] | ids before it) and the number of such tokens.
struct Likelihood {
  double nats = 0;
  int64_t num_tokens = 0;
};
Likelihood EvaluateLikelihood(StepRunner& runner, std::span<const int32_t> ids, const EvaluateOptions& options);

}  // namespace tessera
