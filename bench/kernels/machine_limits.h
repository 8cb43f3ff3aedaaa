// The limits that kernel rates are divided by, measured in the same run: bytes per second of reading memory linearly, and multiply-adds
// per second of fp32 fma and of the bf16 dot instruction. Each is the best of a few passes on all workers of the pool.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "core/threads.h"
#include "kernels/tier.h"

namespace tessera::bench {

inline double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Memory larger than any cache, backed by huge pages where the host gives them, filled once.
class BigBuffer {
 public:
  explicit BigBuffer(int64_t bytes) : bytes_(bytes) {
    void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) Fail("cannot map {} bytes", bytes);
    madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    data_ = static_cast<uint8_t*>(base);
    Fill();
  }
  ~BigBuffer() { munmap(data_, static_cast<size_t>(bytes_)); }
  BigBuffer(const BigBuffer&) = delete;
  BigBuffer& operator=(const BigBuffer&) = delete;
  // The same random bytes on every call.
  void Fill() {
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i + 8 <= bytes_; i += 8) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      std::memcpy(data_ + i, &state, 8);
    }
  }
  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t bytes_;
};

// Seconds of the fastest of `passes` runs of body(worker_idx) on every worker, after one that is not timed.
template <class F>
double BestSeconds(WorkerPool& pool, int passes, F&& body) {
  pool.Run(body);
  double best = 1e30;
  for (int pass = 0; pass < passes; ++pass) {
    const double begin = Now();
    pool.Run(body);
    best = std::min(best, Now() - begin);
  }
  return best;
}

// Reads `bytes` (a multiple of 512) linearly with the widest loads of the CPU. Plain 16-byte loads reached two thirds of this: the core's
// window then covers too few lines, and a limit that is too low flatters every kernel.
inline void ReadMemory(const uint8_t* data, int64_t bytes) {
  int64_t blocks = bytes / 512;
  if (blocks == 0) return;
  if (BestTier() == Tier::kAvx512) {
    asm volatile("1:\n.irp r,0,1,2,3,4,5,6,7\nvpaddq 64*\\r(%0),%%zmm\\r,%%zmm\\r\n.endr\nadd $512,%0\ndec %1\njnz 1b\nvzeroupper"
                 : "+r"(data), "+r"(blocks)::"cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
  } else if (BestTier() == Tier::kAvx2) {
    asm volatile(
        "1:\n.irp r,0,1,2,3,4,5,6,7\nvpaddq 64*\\r(%0),%%ymm\\r,%%ymm\\r\nvpaddq 64*\\r+32(%0),%%ymm\\r,%%ymm\\r\n.endr\nadd $512,%0\n"
        "dec %1\njnz 1b\nvzeroupper"
        : "+r"(data), "+r"(blocks)::"cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
  } else {
    asm volatile(
        "1:\n.irp r,0,1,2,3,4,5,6,7\npaddq 64*\\r(%0),%%xmm\\r\npaddq 64*\\r+16(%0),%%xmm\\r\npaddq 64*\\r+32(%0),%%xmm\\r\n"
        "paddq 64*\\r+48(%0),%%xmm\\r\n.endr\nadd $512,%0\ndec %1\njnz 1b"
        : "+r"(data), "+r"(blocks)::"cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");
  }
}

// Median, like every rate of the table: passes differ with what other guests of the host do.
inline double StreamGbPerSecond(WorkerPool& pool, const BigBuffer& buffer, int passes) {
  std::vector<double> seconds;
  const auto body = [&](int worker_idx) {
    const Range range = PartOf(buffer.bytes(), worker_idx, pool.num_workers(), 4096);
    ReadMemory(buffer.data() + range.begin, range.end - range.begin);
  };
  for (int pass = 0; pass < passes; ++pass) {
    const double begin = Now();
    pool.Run(body);
    seconds.push_back(Now() - begin);
  }
  std::nth_element(seconds.begin(), seconds.begin() + passes / 2, seconds.end());
  return static_cast<double>(buffer.bytes()) / seconds[passes / 2] / 1e9;
}

// Twelve independent sums of each instruction, `loops` times; the registers are whatever they were, only the time counts.
inline void FmaLoop(int64_t loops, bool wide) {
  if (wide) {
    asm volatile(
        "vpxord %%zmm30,%%zmm30,%%zmm30\n.irp r,0,1,2,3,4,5,6,7,8,9,10,11\nvpxord %%zmm\\r,%%zmm\\r,%%zmm\\r\n.endr\n"
        "1:\n.irp r,0,1,2,3,4,5,6,7,8,9,10,11\nvfmadd231ps %%zmm30,%%zmm30,%%zmm\\r\n.endr\ndec %0\njnz 1b\nvzeroupper"
        : "+r"(loops)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11");
  } else {
    asm volatile(
        "vpxor %%ymm15,%%ymm15,%%ymm15\n.irp r,0,1,2,3,4,5,6,7,8,9,10,11\nvpxor %%ymm\\r,%%ymm\\r,%%ymm\\r\n.endr\n"
        "1:\n.irp r,0,1,2,3,4,5,6,7,8,9,10,11\nvfmadd231ps %%ymm15,%%ymm15,%%ymm\\r\n.endr\ndec %0\njnz 1b\nvzeroupper"
        : "+r"(loops)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm15");
  }
}
inline void Bf16DotLoop(int64_t loops) {
  asm volatile(
      "vpxord %%zmm30,%%zmm30,%%zmm30\n.irp r,0,1,2,3,4,5,6,7,8,9,10,11\nvpxord %%zmm\\r,%%zmm\\r,%%zmm\\r\n.endr\n"
      "1:\n.irp r,0,1,2,3,4,5,6,7,8,9,10,11\nvdpbf16ps %%zmm30,%%zmm30,%%zmm\\r\n.endr\ndec %0\njnz 1b\nvzeroupper"
      : "+r"(loops)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11");
}

struct DotPeaks {
  double fma_gflop_per_s = 0;
  double bf16_dot_gflop_per_s = 0;  // 0 where the CPU has none
};

inline DotPeaks MeasureDotPeaks(WorkerPool& pool, int64_t loops) {
  const bool wide = BestTier() == Tier::kAvx512;
  if (BestTier() == Tier::kScalar) return {};
  DotPeaks peaks;
  const double workers = pool.num_workers();
  peaks.fma_gflop_per_s = workers * loops * 12 * 2 * (wide ? 16 : 8) / 1e9 / BestSeconds(pool, 5, [&](int) { FmaLoop(loops, wide); });
  if (wide) peaks.bf16_dot_gflop_per_s = workers * loops * 12 * 2 * 32 / 1e9 / BestSeconds(pool, 5, [&](int) { Bf16DotLoop(loops); });
  return peaks;
}

}  // namespace tessera::bench
