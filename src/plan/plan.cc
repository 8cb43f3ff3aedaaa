#include "plan/plan.h"

#include "plan/timing.h"

namespace tessera {

void Plan::Replay(WorkerPool& pool, std::span<uint8_t* const> scratch) const noexcept {
  const int num_workers = pool.num_workers();
  pool.Run([this, &pool, scratch, num_workers](int worker_idx) noexcept {
    const WorkerContext worker{worker_idx, num_workers, scratch[worker_idx]};
    for (const Op& op : ops_) {
      op.function(op.arguments, worker);
      pool.Barrier();
    }
  });
}

// A loop of its own, so that a replay that is not timed has no branch in it.
void Plan::ReplayTimed(WorkerPool& pool, std::span<uint8_t* const> scratch, int32_t num_rows, Timing& timing) const noexcept {
  RegionSample* samples = timing.BeginReplay();
  if (samples == nullptr) return Replay(pool, scratch);
  const int num_workers = pool.num_workers();
  pool.Run([this, &pool, scratch, num_workers, samples](int worker_idx) noexcept {
    const WorkerContext worker{worker_idx, num_workers, scratch[worker_idx]};
    pool.Barrier();
    int64_t last = MonotonicNanoseconds();
    for (const Op& op : ops_) {
      op.function(op.arguments, worker);
      pool.Barrier();
      if (worker_idx != 0) continue;
      const int64_t now = MonotonicNanoseconds();
      samples[op.region].nanoseconds += now - last;
      samples[op.region].num_ops += 1;
      last = now;
    }
  });
  timing.EndWall();
  for (const Op& op : ops_) {
    if (op.cost == nullptr) continue;
    const OpCost cost = op.cost(op.arguments);
    samples[op.region].cost.bytes += cost.bytes;
    samples[op.region].cost.flops += cost.flops;
  }
  timing.Record(bucket_rows_, num_rows);
}

}  // namespace tessera
