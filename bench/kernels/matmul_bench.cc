// Rates of the matrix product against the limits of the machine, measured in the same run: weights streamed from memory (a set larger
// than the caches, each matrix used once per pass) for 1 to 512 activation rows, on one worker and on all.
// --smoke: tiny sizes, for the tests (all runs print a hash of the results). --json: one line of the main rates per number of workers.
// --tier NAME lowers the tier, --format NAME and --rows N pick one line of the table.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/arena.h"
#include "kernels/machine_rate.h"
#include "kernels/matmul.h"
#include "kernels/tier.h"

namespace tessera::bench {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Options {
  bool smoke = false;
  bool json = false;
  int64_t cols = 4096;
  int64_t rows = 2048;
  int64_t set_bytes = int64_t{1} << 30;
  std::string format;    // all when empty
  int64_t num_rows = 0;  // all when 0
};

struct Case {
  const char* name;
  Format format;
  int32_t block_rows;
  int32_t block_cols;
};
constexpr Case kCases[] = {
    {"fp4", Format::kE2M1, 1, 32}, {"fp8", Format::kE4M3, 128, 128}, {"fp8_32", Format::kE4M3, 32, 32}, {"bf16", Format::kBF16, 1, 1}};
constexpr int64_t kRowCounts[] = {1, 2, 4, 8, 16, 128, 512};

// As many matrices as fit the buffer, one after the other, payload then scales.
std::vector<QuantView> CutMatrices(const Case& entry, const Options& options, const RateBuffer& buffer) {
  QuantView w;
  w.format = entry.format;
  w.rows = options.rows;
  w.cols = options.cols;
  w.row_bytes = FormatRowBytes(w.format, w.cols);
  w.block_rows = entry.block_rows;
  w.block_cols = entry.block_cols;
  const bool scaled = entry.format == Format::kE2M1 || entry.format == Format::kE4M3;
  w.scale_stride = scaled ? (w.cols + w.block_cols - 1) / w.block_cols : 0;
  const int64_t scale_bytes = (w.rows + w.block_rows - 1) / w.block_rows * w.scale_stride;
  std::vector<QuantView> matrices;
  for (int64_t at = 0; at + w.rows * w.row_bytes + scale_bytes <= buffer.bytes();) {
    w.payload = buffer.data() + at;
    at += w.rows * w.row_bytes;
    if (scaled) w.scales = buffer.data() + at;
    at += scale_bytes;
    matrices.push_back(w);
  }
  return matrices;
}

// Scales of 2^-9 .. 2^6, and bf16 weights without the subnormals, infinities and NaN that random bytes would hold.
void PrepareBytes(const std::vector<QuantView>& matrices) {
  for (const QuantView& w : matrices) {
    if (w.format == Format::kBF16) {
      uint8_t* bytes = const_cast<uint8_t*>(w.payload);
      for (int64_t i = 1; i < w.rows * w.row_bytes; i += 2) bytes[i] = static_cast<uint8_t>((bytes[i] & 0x83) | 0x3c);
    } else {
      uint8_t* scales = const_cast<uint8_t*>(w.scales);
      const int64_t count = (w.rows + w.block_rows - 1) / w.block_rows * w.scale_stride;
      for (int64_t i = 0; i < count; ++i) scales[i] = static_cast<uint8_t>(118 + scales[i] % 16);
    }
  }
}

int64_t MatrixBytes(const QuantView& w) {
  return w.rows * w.row_bytes + (w.scales != nullptr ? (w.rows + w.block_rows - 1) / w.block_rows * w.scale_stride : 0);
}

struct Bench {
  const Options& options;
  WorkerPool& pool;
  Arena arena;
  View<bf16> x;
  View<bf16> out;
  std::vector<void*> scratch;

  Bench(const Options& run_options, WorkerPool& workers) : options(run_options), pool(workers), arena("matmul bench", size_t{1} << 30) {
    x = arena.AllocateView<bf16>(512, options.cols);
    for (int64_t i = 0; i < 512 * options.cols; ++i) x.data[i] = ToBf16(static_cast<float>((i * 7919) % 2001 - 1000) / 500.0f);
    out = arena.AllocateView<bf16>(512, options.rows);
    for (int i = 0; i < pool.num_workers(); ++i)
      scratch.push_back(arena.AllocateBytes(static_cast<size_t>(MatMulScratchBytes(options.cols))));
  }

  // Median seconds of one pass over `matrices` with num_rows activation rows.
  double SecondsPerMatrix(const std::vector<QuantView>& matrices, int64_t num_rows) {
    const size_t mark = arena.used_bytes();
    void* packed = arena.AllocateBytes(static_cast<size_t>(PackedBytes<bf16>(matrices[0].format, num_rows, options.cols)));
    PackActivations<bf16>(x, nullptr, num_rows, matrices[0].format, packed);
    const View<bf16> rows_out = out.Rows(0, num_rows);
    const size_t count = num_rows <= 4 ? matrices.size() : std::max<size_t>(1, std::min<size_t>(matrices.size(), 512 / num_rows));
    std::vector<double> seconds;
    const int passes = options.smoke ? 1 : num_rows <= 4 ? 7 : 5;
    for (int pass = 0; pass < passes; ++pass) {
      const double begin = Now();
      for (size_t i = 0; i < count; ++i) {
        const QuantView& w = matrices[i];
        pool.Run([&](int worker_idx) {
          const Range part = PartOf(w.rows, worker_idx, pool.num_workers(), 32);
          MatMulPacked<bf16, bf16>(packed, num_rows, w.Rows(part.begin, part.end - part.begin),
                                   rows_out.Columns(part.begin, part.end - part.begin), scratch[worker_idx]);
        });
      }
      seconds.push_back((Now() - begin) / static_cast<double>(count));
    }
    std::nth_element(seconds.begin(), seconds.begin() + passes / 2, seconds.end());
    arena.Rewind(mark);
    return seconds[passes / 2];
  }

  uint64_t OutputHash() const {
    uint64_t hash = 1469598103934665603u;
    for (int64_t i = 0; i < 4 * options.rows; ++i) hash = (hash ^ out.data[i].bits) * 1099511628211u;
    return hash;
  }
};

std::string RunWorkers(const Options& options, int num_workers) {
  WorkerPool pool({.num_workers = num_workers});
  RateBuffer buffer(options.set_bytes, pool);
  const MachineRates rates =
      MeasureMachine(pool, buffer, {.passes = options.smoke ? 1 : 7, .dot_loops = options.smoke ? 1000 : 2000000, .gather = false});
  const double dot_peak = rates.DotGflopPerS(), stream = rates.stream_gb_per_s.median;
  fmt::print("{} worker(s), tier {}: stream {:.1f} GB/s, fp32 fma {:.0f} GFLOP/s, bf16 dot {:.0f} GFLOP/s\n", num_workers,
             TierName(ActiveTier()), stream, rates.fma_gflop_per_s.median, rates.bf16_dot_gflop_per_s.median);
  std::string json = fmt::format(
      "{{\"bench\":\"matmul\",\"workers\":{},\"tier\":\"{}\",\"stream_gb_per_s\":{:.2f},\"fma_gflop_per_s\":{:.1f},"
      "\"bf16_dot_gflop_per_s\":{:.1f}",
      num_workers, TierName(ActiveTier()), stream, rates.fma_gflop_per_s.median, rates.bf16_dot_gflop_per_s.median);
  Bench bench(options, pool);
  for (const Case& entry : kCases) {
    if (!options.format.empty() && options.format != entry.name) continue;
    buffer.Fill(pool);  // preparing one format's bytes spoils them for another
    const std::vector<QuantView> matrices = CutMatrices(entry, options, buffer);
    PrepareBytes(matrices);
    for (const int64_t num_rows : kRowCounts) {
      if (options.num_rows != 0 && options.num_rows != num_rows) continue;
      const double seconds = bench.SecondsPerMatrix(matrices, num_rows);
      const double gb = static_cast<double>(MatrixBytes(matrices[0])) / seconds / 1e9;
      const double gflop = 2.0 * static_cast<double>(num_rows * options.rows * options.cols) / seconds / 1e9;
      fmt::print("  {:<6} M={:<4} {:8.1f} us  {:6.2f} GB/s {:5.1f} % of stream  {:7.1f} GFLOP/s {:5.1f} % of dot peak\n", entry.name,
                 num_rows, seconds * 1e6, gb, 100 * gb / stream, gflop, dot_peak > 0 ? 100 * gflop / dot_peak : 0.0);
      if (num_rows == 1) json += fmt::format(",\"{}_gemv_gb_per_s\":{:.2f}", entry.name, gb);
      if (num_rows == 128 || num_rows == 512) json += fmt::format(",\"{}_m{}_gflop_per_s\":{:.1f}", entry.name, num_rows, gflop);
    }
    fmt::print("  {:<6} result hash {:016x}\n", entry.name, bench.OutputHash());
  }
  return json + "}";
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--smoke") options.smoke = true;
    if (argument == "--json") options.json = true;
    if (argument == "--rows" && i + 1 < argc) options.num_rows = std::stoll(argv[++i]);
    if (argument == "--format" && i + 1 < argc) options.format = argv[++i];
    if (argument == "--tier" && i + 1 < argc) {
      const std::string_view name = argv[++i];
      for (const Tier tier : {Tier::kScalar, Tier::kAvx2, Tier::kAvx512})
        if (TierName(tier) == name) SetActiveTier(tier);
    }
  }
  if (options.smoke) options.cols = 256, options.rows = 64, options.set_bytes = int64_t{1} << 20;
  std::vector<std::string> lines;
  for (int num_workers = 1; num_workers <= NumUsableCores(); num_workers *= 2) lines.push_back(RunWorkers(options, num_workers));
  if (options.json)
    for (const std::string& line : lines) fmt::print("{}\n", line);
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
