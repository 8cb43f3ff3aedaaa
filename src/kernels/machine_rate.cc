#include "kernels/machine_rate.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "core/check.h"
#include "kernels/tier.h"

namespace tessera {

TSR_DECLARE_TIERS(uint64_t ReadStream(const uint8_t* data, int64_t bytes) noexcept;
                  uint64_t ReadRows(const uint8_t* data, const uint32_t* rows, int64_t count) noexcept;
                  float RunFma(float a, float b, int64_t loops) noexcept; int64_t FmaFlopsPerLoop() noexcept;)
namespace avx512 {
float RunBf16Dot(float a, float b, int64_t loops) noexcept;
}

namespace {

constexpr int64_t kHugePageBytes = int64_t{1} << 21;
constexpr int64_t kFillBlockBytes = 4096;  // bytes of one random stream: what a worker fills does not depend on how many there are
constexpr int64_t kGatherRowsPerRun = int64_t{1} << 18;  // per worker
constexpr int kStreamRuns = 8;
constexpr int kRuns = 4;

// What passes compute goes here, so that no compiler leaves them out.
std::atomic<uint64_t> sink;

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

uint64_t NextRandom(uint64_t& state) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

template <class F>
double SecondsOnEveryWorker(WorkerPool& pool, F&& body) {
  const double begin = Now();
  pool.Run(body);
  return Now() - begin;
}

}  // namespace

uint64_t ReadStream(const uint8_t* data, int64_t bytes) noexcept {
  TSR_CHECK(bytes % kStreamBlockBytes == 0 && reinterpret_cast<uintptr_t>(data) % 64 == 0, "{} bytes", bytes);
  return TSR_DISPATCH(ReadStream(data, bytes));
}
uint64_t ReadRows(const uint8_t* data, const uint32_t* rows, int64_t count) noexcept {
  TSR_CHECK(reinterpret_cast<uintptr_t>(data) % 64 == 0, "rows are read with aligned loads");
  return TSR_DISPATCH(ReadRows(data, rows, count));
}
float RunFma(float a, float b, int64_t loops) noexcept { return TSR_DISPATCH(RunFma(a, b, loops)); }
float RunBf16Dot(float a, float b, int64_t loops) noexcept {
  TSR_CHECK(HasBf16Dot(), "tier {} has no bf16 dot", TierName(ActiveTier()));
  return avx512::RunBf16Dot(a, b, loops);
}
int64_t FmaFlopsPerLoop() { return TSR_DISPATCH(FmaFlopsPerLoop()); }
int64_t Bf16DotFlopsPerLoop() { return int64_t{2} * kDotSums * 32; }
bool HasBf16Dot() { return ActiveTier() == Tier::kAvx512; }

RateBuffer::RateBuffer(int64_t bytes, WorkerPool& pool)
    : arena_("a buffer to measure memory with", static_cast<size_t>((bytes + 2 * kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes)),
      bytes_((bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes) {
  const auto base = reinterpret_cast<uintptr_t>(arena_.base());
  data_ = arena_.base() + ((base + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes - base);
  madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);  // a refusal costs a few percent, no more
  Fill(pool);
}

void RateBuffer::Fill(WorkerPool& pool) {
  pool.Run([&](int worker_idx) {
    const Range range = PartOf(bytes_, worker_idx, pool.num_workers(), kFillBlockBytes);
    for (int64_t block = range.begin; block < range.end; block += kFillBlockBytes) {
      uint64_t state = 88172645463325252u ^ (static_cast<uint64_t>(block) * 0x9E3779B97F4A7C15u);
      for (int64_t i = 0; i < kFillBlockBytes; i += 8) {
        const uint64_t word = NextRandom(state);
        std::memcpy(data_ + block + i, &word, 8);
      }
    }
  });
}

RateSpread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

void StreamPass(WorkerPool& pool, const RateBuffer& buffer, std::vector<double>& gb_per_s) {
  for (int run = 0; run < kStreamRuns; ++run) {
    const Range whole = PartOf(buffer.bytes(), run, kStreamRuns, kFillBlockBytes);
    const double seconds = SecondsOnEveryWorker(pool, [&](int worker_idx) {
      const Range range = PartOf(whole.end - whole.begin, worker_idx, pool.num_workers(), kFillBlockBytes);
      sink += ReadStream(buffer.data() + whole.begin + range.begin, range.end - range.begin);
    });
    gb_per_s.push_back(static_cast<double>(whole.end - whole.begin) / seconds / 1e9);
  }
}

void GatherPass(WorkerPool& pool, const RateBuffer& buffer, int pass_idx, std::vector<double>& gb_per_s) {
  const uint64_t num_rows = static_cast<uint64_t>(buffer.bytes() / kGatherRowBytes);
  const int64_t count = std::min(kGatherRowsPerRun, buffer.bytes() / kGatherRowBytes);
  std::vector<std::vector<uint32_t>> rows(static_cast<size_t>(pool.num_workers()));
  uint64_t state = 88172645463325252u + static_cast<uint64_t>(pass_idx) * 0x9E3779B97F4A7C15u;
  for (int run = 0; run < kRuns; ++run) {
    for (std::vector<uint32_t>& list : rows) {
      list.resize(static_cast<size_t>(count));
      for (uint32_t& row : list) row = static_cast<uint32_t>((NextRandom(state) >> 11) % num_rows);
    }
    const double seconds = SecondsOnEveryWorker(
        pool, [&](int worker_idx) { sink += ReadRows(buffer.data(), rows[static_cast<size_t>(worker_idx)].data(), count); });
    gb_per_s.push_back(static_cast<double>(count * pool.num_workers() * kGatherRowBytes) / seconds / 1e9);
  }
}

void FmaPass(WorkerPool& pool, int64_t loops, std::vector<double>& gflop_per_s) {
  for (int run = 0; run < kRuns; ++run) {
    const double seconds = SecondsOnEveryWorker(pool, [&](int) { sink += static_cast<uint64_t>(RunFma(0.5f, 1.0f, loops) != 0); });
    gflop_per_s.push_back(static_cast<double>(loops * FmaFlopsPerLoop() * pool.num_workers()) / seconds / 1e9);
  }
}

void Bf16DotPass(WorkerPool& pool, int64_t loops, std::vector<double>& gflop_per_s) {
  if (!HasBf16Dot()) return;
  for (int run = 0; run < kRuns; ++run) {
    const double seconds = SecondsOnEveryWorker(pool, [&](int) { sink += static_cast<uint64_t>(RunBf16Dot(0.5f, 1.0f, loops) != 0); });
    gflop_per_s.push_back(static_cast<double>(loops * Bf16DotFlopsPerLoop() * pool.num_workers()) / seconds / 1e9);
  }
}

double MachineRates::DotGflopPerS() const { return std::max(fma_gflop_per_s.median, bf16_dot_gflop_per_s.median); }

MachineRates MeasureMachine(WorkerPool& pool, const RateBuffer& buffer, const MachineRateOptions& options) {
  std::vector<double> stream, gather, fma, bf16_dot;
  for (int pass = 0; pass <= options.passes; ++pass) {
    StreamPass(pool, buffer, stream);
    if (options.gather) GatherPass(pool, buffer, pass, gather);
    FmaPass(pool, options.dot_loops, fma);
    Bf16DotPass(pool, options.dot_loops, bf16_dot);
    if (pass > 0) continue;
    for (std::vector<double>* list : {&stream, &gather, &fma, &bf16_dot}) list->clear();  // the first wakes cores and page tables up
  }
  return {pool.num_workers(), SpreadOf(std::move(stream)), SpreadOf(std::move(gather)), SpreadOf(std::move(fma)),
          SpreadOf(std::move(bf16_dot))};
}

}  // namespace tessera
