#include "core/threads.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "core/check.h"

namespace tessera {
namespace {

// About 20 us on a 3 GHz core: longer than any op of a decode step that leaves workers waiting, short against a time slice.
constexpr int kSpins = 2000;

// CPUs the calling thread may run on; empty when the host does not say.
std::vector<int> AffinityOfCaller() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  return cpus;
}

std::vector<int> OneCpuPerCore(const std::vector<int>& all) {
  std::vector<int> cpus;
  std::set<std::string> cores_seen;
  for (const int cpu : all) {
    // Two hyper-threads of a core list the same siblings; the first of them stands for the core.
    std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string core;
    if (!std::getline(siblings, core)) core = std::to_string(cpu);
    if (cores_seen.insert(core).second) cpus.push_back(cpu);
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

// What the process was given, read before the first pool pins anything: a pinned thread would see its one core only.
const std::vector<int>& UsableCpus() {
  static const std::vector<int> cpus = OneCpuPerCore(AffinityOfCaller());
  return cpus;
}

// Cores granted by cgroup v2's cpu.max, INT_MAX where there is no limit.
int CgroupCpuLimit() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return INT_MAX;
  return std::max(1, static_cast<int>(std::stod(quota) / period));
}

void PinCurrentThread(const std::vector<int>& cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) CPU_SET(cpu, &mask);
  pthread_setaffinity_np(pthread_self(), sizeof mask, &mask);
}

}  // namespace

int NumUsableCores() { return std::min(static_cast<int>(UsableCpus().size()), CgroupCpuLimit()); }

WorkerPool::WorkerPool(Options options) : num_workers_(options.num_workers) {
  TSR_CHECK(num_workers_ >= 1, "{} workers", num_workers_);
  const std::vector<int>& cpus = UsableCpus();
  // A worker that spins where there are too few cores keeps from running the one it waits for.
  num_spins_ = num_workers_ <= static_cast<int>(cpus.size()) ? kSpins : 0;
  // More workers than cores would fight for them: the kernel places them better than we could.
  const bool pin = options.pin && num_workers_ > 1 && num_workers_ <= static_cast<int>(cpus.size());
  if (pin) {
    caller_cpus_ = AffinityOfCaller();
    caller_ = std::this_thread::get_id();
    PinCurrentThread({cpus[0]});
  }
  for (int worker_idx = 1; worker_idx < num_workers_; ++worker_idx) {
    const int cpu = pin ? cpus[worker_idx] : -1;
    try {
      threads_.emplace_back([this, worker_idx, cpu] {
        if (cpu >= 0) PinCurrentThread({cpu});
        WorkerMain(worker_idx);
      });
    } catch (const std::system_error& error) {  // a limit on processes, most likely that of a container
      Stop();
      Fail("cannot start worker {} of {} ({}): lower --threads or raise the limit on processes", worker_idx + 1, num_workers_,
           error.what());
    }
  }
}

WorkerPool::~WorkerPool() { Stop(); }

void WorkerPool::Stop() {
  stopping_ = true;
  Publish(generation_, generation_.value.load(std::memory_order_relaxed) + 1);
  for (std::thread& thread : threads_) thread.join();
  if (!caller_cpus_.empty() && caller_ == std::this_thread::get_id()) PinCurrentThread(caller_cpus_);
}

void WorkerPool::WaitWhileEqual(Counter& counter, uint32_t old) const noexcept {
  for (int spin = 0; spin < num_spins_; ++spin) {
    if (counter.value.load(std::memory_order_acquire) != old) return;
    _mm_pause();
  }
  // Both sides write, then read what the other wrote, in one total order: either this thread sees the new value or Publish sees it parked.
  counter.num_parked.fetch_add(1, std::memory_order_seq_cst);
  while (counter.value.load(std::memory_order_seq_cst) == old)
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&counter.value), FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
  counter.num_parked.fetch_sub(1, std::memory_order_relaxed);
}

// The system call that wakes is left out while all others spin, as between the ops of a step.
void WorkerPool::Publish(Counter& counter, uint32_t value) noexcept {
  counter.value.store(value, std::memory_order_seq_cst);
  if (counter.num_parked.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&counter.value), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void WorkerPool::WorkerMain(int worker_idx) {
  uint32_t seen = 0;
  for (;;) {
    WaitWhileEqual(generation_, seen);
    seen = generation_.value.load(std::memory_order_acquire);
    if (stopping_) return;
    function_(argument_, worker_idx);
    Barrier();
  }
}

void WorkerPool::Run(Function function, void* argument) noexcept {
  if (num_workers_ == 1) {
    function(argument, 0);
    return;
  }
  function_ = function;
  argument_ = argument;
  Publish(generation_, generation_.value.load(std::memory_order_relaxed) + 1);
  function(argument, 0);
  Barrier();
}

void WorkerPool::Barrier() noexcept {
  if (num_workers_ == 1) return;
  const uint32_t phase = barrier_phase_.value.load(std::memory_order_acquire);
  if (arrived_.value.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(num_workers_)) {
    arrived_.value.store(0, std::memory_order_relaxed);
    Publish(barrier_phase_, phase + 1);
  } else {
    WaitWhileEqual(barrier_phase_, phase);
  }
}

}  // namespace tessera
