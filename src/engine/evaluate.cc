#include "engine/evaluate.h"

#include <algorithm>

#include "core/check.h"
#include "engine/sampler.h"

namespace tessera {

void Evaluate(StepRunner& runner, std::span<const int32_t> ids, const EvaluateOptions& options, const EvaluateSink& sink) {
  const int64_t vocab_size = runner.model().config().vocab_size;
  const int64_t num_tokens = static_cast<int64_t>(ids.size());
  if (num_tokens == 0) Fail("a list of ids is empty");
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab_size) Fail("id {} at position {} is outside the vocabulary of {}", ids[i], i, vocab_size);
  if (num_tokens > runner.max_context())
    Fail("{} ids, the context holds {} (--max-context; the model has positions for {})", num_tokens, runner.max_context(),
         runner.model().config().max_position_embeddings);
  const int32_t chunk_rows = options.chunk_rows > 0 ? std::min(options.chunk_rows, runner.rows_max()) : runner.options().prefill_rows;
  const int64_t decode_from = options.decode_from >= 0 ? std::min(options.decode_from, num_tokens) : num_tokens;
  Step& step = runner.step();
  for (int64_t first = 0; first < num_tokens;) {
    const int64_t left = first < decode_from ? decode_from - first : 1;
    const int32_t rows = static_cast<int32_t>(std::min<int64_t>(left, chunk_rows));
    step.Clear();
    step.AddSegment(0, first, ids.data() + first, rows, rows);
    runner.PopulateAhead(step.segments[0], num_tokens);
    runner.Replay();
    sink(first, runner.logits(), runner.record());
    first += rows;
  }
  runner.cache().Release(0);
}

Likelihood EvaluateLikelihood(StepRunner& runner, std::span<const int32_t> ids, const EvaluateOptions& options) {
  Likelihood likelihood;
  Evaluate(runner, ids, options, [&](int64_t first, View<const float> logits, const StepRecord*) {
    for (int64_t i = 0; i < logits.rows; ++i) {
      const size_t next = static_cast<size_t>(first + i + 1);
      if (next >= ids.size()) return;
      likelihood.nats -= LogProbability({logits.Row(i), static_cast<size_t>(logits.cols)}, ids[next]);
      ++likelihood.num_tokens;
    }
  });
  return likelihood;
}

}  // namespace tessera
