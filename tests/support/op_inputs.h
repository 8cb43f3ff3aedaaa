// What an op is tested on without a plan: a step in memory of its own, and the op run for every worker in turn, each with a scratch of
// exactly the size it asked for.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/arena.h"
#include "core/step.h"
#include "core/threads.h"
#include "support/matrices.h"

namespace tessera::testing {

class StepRows {
 public:
  explicit StepRows(int32_t max_rows, int32_t padding_slot = 0)
      : arena_("test step", (size_t{1} << 16) + static_cast<size_t>(max_rows) * 256),
        step_(Step::Allocate(arena_, max_rows, padding_slot)) {
    step_.Clear();
  }
  // A segment of `num_rows` tokens with ids 0, 1, ... that want no logits.
  void Add(int32_t slot, int64_t start_pos, int32_t num_rows) {
    std::vector<int32_t> ids(static_cast<size_t>(num_rows));
    for (int32_t i = 0; i < num_rows; ++i) ids[static_cast<size_t>(i)] = i;
    step_.AddSegment(slot, start_pos, ids.data(), num_rows, 0);
  }
  Step& step() { return step_; }

 private:
  Arena arena_;
  Step step_;
};

// Calls body(worker) for the workers 0, 1, ... one after the other. What one leaves behind must not help the next: the scratch is filled
// with bytes that are NaN in every float format.
template <class F>
void RunOnWorkers(int num_workers, int64_t scratch_bytes, F&& body) {
  for (int worker_idx = 0; worker_idx < num_workers; ++worker_idx) {
    const AlignedBuffer scratch(scratch_bytes);
    std::memset(scratch.get(), 0xff, static_cast<size_t>(scratch_bytes));
    body(WorkerContext{worker_idx, num_workers, static_cast<uint8_t*>(scratch.get())});
  }
}

}  // namespace tessera::testing
