// A program of its own for what memory gives: plain threads, its own memory, loads written in assembler. It shares nothing with
// kernels/machine_rate.h on purpose: the two are held against each other.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace prototypes {

inline double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

inline std::vector<int> UsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

// Seconds from the first thread's start to the last one's end; threads are pinned, start together, and read their own clocks.
template <class F>
double SecondsOnThreads(int num_threads, F&& body) {
  static const std::vector<int> cpus = UsableCpus();
  std::atomic<int> num_ready{0};
  std::vector<double> begin(static_cast<size_t>(num_threads)), end(begin);
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cpus[static_cast<size_t>(t) % cpus.size()], &set);
      pthread_setaffinity_np(pthread_self(), sizeof set, &set);
      ++num_ready;
      while (num_ready.load() < num_threads) asm volatile("pause");
      begin[static_cast<size_t>(t)] = Now();
      body(t);
      end[static_cast<size_t>(t)] = Now();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(end.begin(), end.end()) - *std::min_element(begin.begin(), begin.end());
}

// Huge pages where the host gives them, every thread's part touched by it.
inline uint8_t* MapTouched(int64_t bytes, int num_threads) {
  constexpr int64_t kHuge = int64_t{2} << 20;
  void* base =
      mmap(nullptr, static_cast<size_t>(bytes + kHuge), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    std::perror("membw: mmap");
    std::exit(1);
  }
  auto* data = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(base) + kHuge - 1) / kHuge * kHuge);
  madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  const int64_t part = bytes / num_threads;
  SecondsOnThreads(num_threads, [&](int t) { std::fill_n(data + t * part, part, uint8_t{1}); });
  return data;
}

// Sums `bytes` (a multiple of 512) with the widest loads of the CPU into eight registers.
inline void SumLinear(const uint8_t* data, int64_t bytes) {
  int64_t blocks = bytes / 512;
  if (__builtin_cpu_supports("avx512f")) {
    asm volatile("1:\n.irp r,0,1,2,3,4,5,6,7\nvaddps 64*\\r(%0),%%zmm\\r,%%zmm\\r\n.endr\nadd $512,%0\ndec %1\njnz 1b\nvzeroupper"
                 : "+r"(data), "+r"(blocks)::"cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
  } else {
    asm volatile(
        "1:\n.irp r,0,1,2,3,4,5,6,7\naddps 64*\\r(%0),%%xmm\\r\naddps 64*\\r+16(%0),%%xmm\\r\naddps 64*\\r+32(%0),%%xmm\\r\n"
        "addps 64*\\r+48(%0),%%xmm\\r\n.endr\nadd $512,%0\ndec %1\njnz 1b"
        : "+r"(data), "+r"(blocks)::"cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
  }
}

// GB/s of one linear pass, every thread over its part.
inline double LinearGbPerS(const uint8_t* data, int64_t bytes, int num_threads) {
  const int64_t part = bytes / num_threads / 512 * 512;
  return static_cast<double>(part * num_threads) / 1e9 / SecondsOnThreads(num_threads, [&](int t) { SumLinear(data + t * part, part); });
}

}  // namespace prototypes
