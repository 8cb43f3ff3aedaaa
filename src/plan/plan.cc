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
  pool.Run([this, &pool, scratch, num_workers, samples, &timing](int worker_idx) noexcept {
    const WorkerContext worker{worker_idx, num_workers, scratch[worker_idx]};
    // All are awake, then the clock is read, then the first op begins: whoever starts it early would shorten it.
    pool.Barrier();
    int64_t last = MonotonicNanoseconds();
    pool.Barrier();
    for (const Op& op : ops_) {
      op.function(op.arguments, worker);
      pool.Barrier();
      int64_t now = 0;
      if (worker_idx == 0) {
        now = MonotonicNanoseconds();
        samples[op.region].nanoseconds += now - last;
        samples[op.region].num_ops += 1;
        last = now;
      }
      if (op.cost == nullptr) continue;
      // Now: layers share buffers, so that a later op overwrites what this one's cost follows from (which experts have rows). The others
      // wait, and the time of it counts nowhere.
      if (worker_idx == 0) {
        samples[op.region].cost += op.cost(op.arguments);
        last = MonotonicNanoseconds();
        timing.Skip(last - now);
      }
      pool.Barrier();
    }
  });
  timing.EndWall();
  timing.Record(bucket_rows_, num_rows);
}

}  // namespace tessera
