// The machine's limits twice, by kernels/machine_rate.h and by the independent programs of bench/prototypes, passes of the two alternating.
// --reference: the independent ones alone, one line of JSON per number of threads (what tests/end_to_end/bench_stream_slow.py compares
// `tessera bench --stream` with). --smoke: tiny sizes.
#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "kernels/machine_rate.h"
#include "prototypes/flops.h"
#include "prototypes/membw.h"

namespace tessera {
namespace {

constexpr int kParts = 8;  // of the memory, read and timed one after the other

struct Sizes {
  int64_t bytes = int64_t{2} << 30;
  int64_t loops = 4'000'000;
  int passes = 5;
};

struct Rates {
  std::vector<double> stream, fma, bf16_dot;
};

void AddReferencePass(Rates& rates, const uint8_t* data, int num_threads, const Sizes& sizes) {
  const int64_t part = sizes.bytes / kParts;
  for (int i = 0; i < kParts; ++i) rates.stream.push_back(prototypes::LinearGbPerS(data + i * part, part, num_threads));
  if (!prototypes::HasWideDots()) return;
  for (int i = 0; i < kParts / 2; ++i) rates.fma.push_back(prototypes::FmaGflopPerS(num_threads, sizes.loops));
  for (int i = 0; i < kParts / 2; ++i) rates.bf16_dot.push_back(prototypes::Bf16DotGflopPerS(num_threads, sizes.loops));
}

void AddPass(Rates& rates, WorkerPool& pool, const RateBuffer& buffer, const Sizes& sizes) {
  StreamPass(pool, buffer, rates.stream);
  FmaPass(pool, sizes.loops, rates.fma);
  Bf16DotPass(pool, sizes.loops, rates.bf16_dot);
}

void PrintReference(const Sizes& sizes, int num_threads, const uint8_t* data) {
  Rates rates;
  for (int pass = 0; pass < sizes.passes; ++pass) AddReferencePass(rates, data, num_threads, sizes);
  const RateSpread stream = SpreadOf(rates.stream), fma = SpreadOf(rates.fma), bf16_dot = SpreadOf(rates.bf16_dot);
  fmt::print(
      "{{\"workers\":{},\"stream_gb_per_s\":{:.3f},\"stream_gb_per_s_max\":{:.3f},\"fma_gflop_per_s\":{:.2f},"
      "\"fma_gflop_per_s_max\":{:.2f},\"bf16_dot_gflop_per_s\":{:.2f},\"bf16_dot_gflop_per_s_max\":{:.2f}}}\n",
      num_threads, stream.median, stream.max, fma.median, fma.max, bf16_dot.median, bf16_dot.max);
}

void PrintLine(const char* name, const std::vector<double>& ours, const std::vector<double>& reference) {
  const RateSpread a = SpreadOf(ours), b = SpreadOf(reference);
  fmt::print("  {:<24} {:8.2f} ({:.2f} to {:.2f})   independent {:8.2f} ({:.2f} to {:.2f})\n", name, a.median, a.min, a.max, b.median,
             b.min, b.max);
}

void PrintBoth(const Sizes& sizes, int num_threads, const uint8_t* data) {
  WorkerPool pool({.num_workers = num_threads});
  const RateBuffer buffer(sizes.bytes, pool);
  Rates ours, reference;
  for (int pass = 0; pass < sizes.passes; ++pass) {
    AddPass(ours, pool, buffer, sizes);
    AddReferencePass(reference, data, num_threads, sizes);
  }
  fmt::print("{} worker(s)\n", num_threads);
  PrintLine("stream GB/s", ours.stream, reference.stream);
  PrintLine("fp32 fma GFLOP/s", ours.fma, reference.fma);
  PrintLine("bf16 dot GFLOP/s", ours.bf16_dot, reference.bf16_dot);
}

int Main(int argc, char** argv) {
  Sizes sizes;
  bool reference = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--smoke") sizes = {int64_t{1} << 22, 1000, 2};
    if (std::string_view(argv[i]) == "--reference") reference = true;
  }
  const int num_cores = NumUsableCores();
  const uint8_t* data = prototypes::MapTouched(sizes.bytes, num_cores);
  for (int num_threads : {1, num_cores}) {
    reference ? PrintReference(sizes, num_threads, data) : PrintBoth(sizes, num_threads, data);
    if (num_cores == 1) break;
  }
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
