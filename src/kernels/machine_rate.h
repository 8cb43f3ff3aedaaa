// The limits of this machine that every rate is divided by: bytes a second of reading memory linearly and in random rows, and
// floating-point operations a second of the instructions that products of bf16 are made of. Measured on the workers of a pool, so that they
// are taken in the same run, on the same cores, as what is compared with them. One place: the kernel benches and `tessera bench` ask here.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arena.h"
#include "core/threads.h"

namespace tessera {

// The bodies, of the active tier. The sums are over 64-bit words modulo 2^64, so they do not depend on the order of reading: a test holds
// that every byte was read.
// `bytes`: a multiple of kStreamBlockBytes; `data` aligned to 64.
constexpr int64_t kStreamBlockBytes = 512;
uint64_t ReadStream(const uint8_t* data, int64_t bytes) noexcept;
// Rows of kGatherRowBytes at data + row * kGatherRowBytes, each prefetched kGatherAhead rows before it is read (rows: [count]).
constexpr int64_t kGatherRowBytes = 256;
constexpr int64_t kGatherAhead = 16;  // 8 to 32 are equal within the noise, 0 is slower by about a tenth
uint64_t ReadRows(const uint8_t* data, const uint32_t* rows, int64_t count) noexcept;
// kDotSums independent sums, `loops` additions of a product to each; returns the sum of all lanes of all sums, which start at 0.
constexpr int kDotSums = 12;  // fills the pipes: latency 4 or 5 times two instructions a cycle
float RunFma(float a, float b, int64_t loops) noexcept;
float RunBf16Dot(float a, float b, int64_t loops) noexcept;  // a and b are bf16 values; only where HasBf16Dot()
int64_t FmaFlopsPerLoop();
int64_t Bf16DotFlopsPerLoop();
bool HasBf16Dot();  // the active tier is AVX-512

// Memory that no cache holds, backed by huge pages where the host gives them.
class RateBuffer {
 public:
  // Throws Error when the host refuses. `bytes` is rounded up to whole huge pages. Every worker fills (and so places) what it will read.
  RateBuffer(int64_t bytes, WorkerPool& pool);
  // The same random bytes on every call, however many workers there are.
  void Fill(WorkerPool& pool);

  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Arena arena_;
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

struct RateSpread {
  double median = 0;
  double min = 0;
  double max = 0;
};
RateSpread SpreadOf(std::vector<double> values);  // zeros when empty

// Passes, which callers interleave with what they measure. Each appends the rates, in units a second, of several runs of some ten
// milliseconds, with the clock read around the whole pool: on a machine that others share, long runs find no moment of their own.
// The stream reads the whole buffer once, an eighth a run.
void StreamPass(WorkerPool& pool, const RateBuffer& buffer, std::vector<double>& gb_per_s);
// Passes of different numbers read different rows: those that the pass before left in a cache would flatter.
void GatherPass(WorkerPool& pool, const RateBuffer& buffer, int pass_idx, std::vector<double>& gb_per_s);
void FmaPass(WorkerPool& pool, int64_t loops, std::vector<double>& gflop_per_s);
void Bf16DotPass(WorkerPool& pool, int64_t loops, std::vector<double>& gflop_per_s);  // nothing where !HasBf16Dot()

struct MachineRates {
  int num_workers = 0;
  RateSpread stream_gb_per_s;
  RateSpread gather_gb_per_s;
  RateSpread fma_gflop_per_s;
  RateSpread bf16_dot_gflop_per_s;  // zeros where the tier has none

  // The dot peak: the faster of the two ways to multiply bf16 values. They have the same bits, and a slower limit would flatter.
  double DotGflopPerS() const;
};
struct MachineRateOptions {
  int passes = 5;
  int64_t dot_loops = 4'000'000;  // of a run: some ten milliseconds
  bool gather = true;
};
// One pass of everything that is not counted, then `passes` that are.
MachineRates MeasureMachine(WorkerPool& pool, const RateBuffer& buffer, const MachineRateOptions& options);

}  // namespace tessera
