#include "plan/plan.h"

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

}  // namespace tessera
