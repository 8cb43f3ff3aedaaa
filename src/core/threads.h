// One pinned worker per physical core with its own barrier. Workers spin for a short while and then park on a futex, so that a step
// starts within a microsecond while serving and an idle engine burns no core. The caller of Run is worker 0.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace tessera {

// Physical cores this process may run on (affinity mask and cgroup quota considered); at least 1.
int NumUsableCores();

class WorkerPool {
 public:
  using Function = void (*)(void* argument, int worker_idx) noexcept;

  struct Options {
    int num_workers = 1;
    bool pin = true;  // worker i to the i-th usable core, the constructing thread (worker 0) until destruction; refusals are ignored
  };

  // Throws Error when the host refuses a thread.
  explicit WorkerPool(Options options);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int num_workers() const { return num_workers_; }

  // Runs function(argument, worker_idx) on every worker and returns when all are done. Not reentrant; one caller at a time.
  void Run(Function function, void* argument) noexcept;
  template <class F>
  void Run(F&& body) noexcept {
    Run([](void* argument, int worker_idx) noexcept { (*static_cast<std::remove_reference_t<F>*>(argument))(worker_idx); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // All workers wait here for each other; only inside Run.
  void Barrier() noexcept;

 private:
  struct alignas(128) Counter {
    std::atomic<uint32_t> value{0};
    std::atomic<uint32_t> num_parked{0};  // threads that wait, or are about to wait, in the kernel
  };
  void WorkerMain(int worker_idx);
  void Stop();
  void WaitWhileEqual(Counter& counter, uint32_t old) const noexcept;
  static void Publish(Counter& counter, uint32_t value) noexcept;

  int num_workers_;
  int num_spins_;
  Function function_ = nullptr;
  void* argument_ = nullptr;
  bool stopping_ = false;
  Counter generation_;     // bumped by Run: work is ready
  Counter arrived_;        // workers inside the current barrier
  Counter barrier_phase_;  // bumped by the last to arrive
  std::vector<std::thread> threads_;
  std::vector<int> caller_cpus_;  // where the constructing thread might run before it was pinned; empty: it was not
  std::thread::id caller_;
};

// The part of [0, count) that worker `worker_idx` of `num_workers` does: contiguous, cut at multiples of `grain`, the same on every call.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};
inline Range PartOf(int64_t count, int worker_idx, int num_workers, int64_t grain = 1) {
  const int64_t num_grains = (count + grain - 1) / grain;
  const int64_t begin = num_grains * worker_idx / num_workers * grain;
  const int64_t end = num_grains * (worker_idx + 1) / num_workers * grain;
  return {begin < count ? begin : count, end < count ? end : count};
}

// What a function run on every worker learns about who runs it.
struct WorkerContext {
  int worker_idx = 0;
  int num_workers = 1;
  uint8_t* scratch = nullptr;  // private to the worker, 64-byte aligned, contents undefined; its size was fixed when the plan was built

  Range PartOf(int64_t count, int64_t grain = 1) const { return tessera::PartOf(count, worker_idx, num_workers, grain); }
};

}  // namespace tessera
