// The kernels that run per token on one row: bytes read and written per second, rows in cache, at the widths of V4.1-Flash and V4-Flash.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "core/random.h"
#include "kernels/convert.h"
#include "kernels/gather_rows.h"
#include "kernels/hadamard.h"
#include "kernels/ngram_hash.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "kernels/stream_gate.h"
#include "kernels/swiglu.h"

namespace tessera {
namespace {

template <class T>
std::vector<T> Values(uint64_t seed, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = FromFloat<T>(static_cast<float>(UniformDouble(seed, 0, i) * 4 - 2));
  return values;
}

// Runs op until the benchmark has enough, then notes the rate of the bytes one call moves and a hash of what it wrote.
template <class T, class F>
void Measure(benchmark::State& state, int64_t bytes, const std::vector<T>& out, F&& op) {
  for (auto _ : state) {
    op();
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes);
  const auto* written = reinterpret_cast<const unsigned char*>(out.data());
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < out.size() * sizeof(T); ++i) hash = (hash ^ written[i]) * 16777619u;
  state.counters["hash"] = hash;
}

template <class T>
constexpr int64_t kBytes = static_cast<int64_t>(sizeof(T));

template <class T>
void BenchConvertNarrow(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<float> x = Values<float>(1, n);
  std::vector<T> y(x.size());
  Measure(state, n * (4 + kBytes<T>), y, [&] { ConvertRow(x.data(), n, y.data()); });
}

template <class T>
void BenchQuantizeQ8(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<T> x = Values<T>(1, n);
  std::vector<uint8_t> codes(x.size()), scales(x.size());
  Measure(state, n * (kBytes<T> + 1), codes, [&] { QuantizeQ8(x.data(), n, 32, codes.data(), scales.data()); });
}
template <class T>
void BenchDequantizeQ8(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::vector<T> x = Values<T>(1, n);
  std::vector<uint8_t> codes(x.size()), scales(x.size());
  QuantizeQ8(x.data(), n, 32, codes.data(), scales.data());
  Measure(state, n * (kBytes<T> + 1), x, [&] { DequantizeQ8(codes.data(), scales.data(), n, 32, x.data()); });
}
template <class T>
void BenchFakeQuantizeQ8(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::vector<T> x = Values<T>(1, n);
  Measure(state, n * 2 * kBytes<T>, x, [&] { FakeQuantizeQ8(x.data(), n, 64); });
}
template <class T>
void BenchQuantizeQ4(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<T> x = Values<T>(1, n);
  std::vector<uint8_t> codes(x.size()), scales(x.size());
  Measure(state, n * kBytes<T> + n / 2, codes, [&] { QuantizeQ4(x.data(), n, 32, codes.data(), scales.data()); });
}
template <class T>
void BenchQuantizeQ4e(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<T> x = Values<T>(1, n);
  std::vector<uint8_t> codes(x.size()), scales(x.size());
  Measure(state, n * kBytes<T> + n / 2, codes, [&] { QuantizeQ4e(x.data(), n, 16, codes.data(), scales.data()); });
}
template <class T>
void BenchDequantizeQ4e(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::vector<T> x = Values<T>(1, n);
  std::vector<uint8_t> codes(x.size()), scales(x.size());
  QuantizeQ4e(x.data(), n, 16, codes.data(), scales.data());
  Measure(state, n * kBytes<T> + n / 2, x, [&] { DequantizeQ4e(codes.data(), scales.data(), n, 16, x.data()); });
}

template <class T>
void BenchRmsNorm(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<T> x = Values<T>(1, n);
  const std::vector<bf16> weight = Values<bf16>(2, n);
  std::vector<T> y(x.size());
  Measure(state, n * (2 * kBytes<T> + 2), y, [&] { RmsNorm(x.data(), weight.data(), 1e-20f, n, y.data()); });
}
template <class T>
void BenchHeadNorm(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::vector<T> x = Values<T>(1, n);
  Measure(state, n * 2 * kBytes<T>, x, [&] { HeadNorm(x.data(), 1e-6f, n); });
}

void BenchRopeCosSin(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<float> frequencies = RopeFrequencies({.rope_dims = n, .theta = 10000});
  std::vector<float> cos(static_cast<size_t>(n / 2)), sin(static_cast<size_t>(n / 2));
  int64_t position = 0;
  Measure(state, n * 4, std::vector<float>{}, [&] { RopeCosSin(position++ % 100000, frequencies.data(), n, cos.data(), sin.data()); });
}
template <class T>
void BenchRotate(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::vector<T> x = Values<T>(1, n);
  std::vector<float> cos(static_cast<size_t>(n / 2)), sin(static_cast<size_t>(n / 2));
  RopeCosSin(1, RopeFrequencies({.rope_dims = n, .theta = 10000}).data(), n, cos.data(), sin.data());
  Measure(state, n * (2 * kBytes<T> + 4), x, [&] { RotateInterleaved(x.data(), cos.data(), sin.data(), n, false); });
}

template <class T>
void BenchSwiGlu(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<T> g = Values<T>(1, n), u = Values<T>(2, n);
  std::vector<T> h(g.size());
  Measure(state, n * 3 * kBytes<T>, h, [&] { SwiGlu(g.data(), u.data(), n, 10, 0.5f, h.data()); });
}
void BenchSqrtSoftplus(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<float> x = Values<float>(1, n);
  std::vector<float> y(x.size());
  Measure(state, n * 8, y, [&] { SqrtSoftplus(x.data(), n, y.data()); });
}

template <class T>
void BenchHadamard(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::vector<T> x = Values<T>(1, n);
  Measure(state, n * 2 * kBytes<T>, x, [&] { Hadamard(x.data(), n); });
}

void BenchNgramRows(benchmark::State& state) {
  constexpr int kOrders = 3;
  const int heads = static_cast<int>(state.range(0));
  const std::vector<int64_t> multipliers = {76632096046245, 4839876093313, 35959672319349, 73987337458391};
  const std::vector<int64_t> primes(static_cast<size_t>(kOrders * heads), 16000057), offsets(primes.size(), 5);
  const std::vector<int32_t> window = {17, 99091, 4242, 7};
  std::vector<int64_t> rows(primes.size());
  const NgramHashParameters parameters = {4, heads, multipliers.data(), primes.data(), offsets.data(), 2};
  Measure(state, kOrders * heads * 24, rows, [&] { NgramRows(parameters, window.data(), rows.data()); });
}

template <class T>
void BenchGatherQuantizedRow(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::vector<T> x = Values<T>(1, n);
  std::vector<uint8_t> codes(x.size()), scales(x.size());
  QuantizeQ8(x.data(), n, 32, codes.data(), scales.data());
  bool ok = true;
  Measure(state, n * (kBytes<T> + 1), x, [&] { ok = GatherQuantizedRow(codes.data(), scales.data(), n, x.data()) && ok; });
  if (!ok) state.SkipWithError("a scale byte of 255 where there is none");
}
template <class T>
void BenchGatherRow(benchmark::State& state) {
  const int64_t n = state.range(0);
  const std::vector<bf16> row = Values<bf16>(1, n);
  std::vector<T> y(static_cast<size_t>(4 * n));
  const QuantView table = {.payload = reinterpret_cast<const uint8_t*>(row.data()), .rows = 1, .cols = n, .row_bytes = 2 * n};
  Measure(state, n * (2 + 4 * kBytes<T>), y, [&] { GatherRow(table, 0, 4, n, y.data()); });
}

template <class T>
void BenchStreamGate(benchmark::State& state) {
  const int64_t n = state.range(0);
  std::vector<T> x = Values<T>(1, 4 * n);
  std::vector<T> kv = Values<T>(2, 5 * n);
  for (int64_t i = 4 * n; i < 5 * n; ++i) kv[static_cast<size_t>(i)] = FromFloat<T>(0);  // the streams stay as they are, run after run
  const std::vector<float> weight = Values<float>(3, 4 * n);
  float gates[4];
  Measure(state, n * (4 * (3 * kBytes<T> + 4 + kBytes<T>)), x,
          [&] { StreamGate(x.data(), kv.data(), weight.data(), {.hc_mult = 4, .hidden = n, .eps = 1e-20f}, gates); });
}

void Register(bool smoke) {
  const auto add = [&](const char* name, void (*function)(benchmark::State&), int64_t width, int64_t smoke_width) {
    auto* entry = benchmark::RegisterBenchmark(name, function)->Arg(smoke ? smoke_width : width);
    if (smoke) entry->Iterations(1);
  };
  add("ConvertRow/float_to_bf16", BenchConvertNarrow<bf16>, 5120, 37);
  add("QuantizeQ8<bf16>/block_32", BenchQuantizeQ8<bf16>, 5120, 70);
  add("QuantizeQ8<float>/block_32", BenchQuantizeQ8<float>, 5120, 70);
  add("DequantizeQ8<bf16>/block_32", BenchDequantizeQ8<bf16>, 512, 70);
  add("FakeQuantizeQ8<bf16>/block_64", BenchFakeQuantizeQ8<bf16>, 448, 70);
  add("QuantizeQ4<bf16>/block_32", BenchQuantizeQ4<bf16>, 128, 70);
  add("QuantizeQ4e<bf16>/block_16", BenchQuantizeQ4e<bf16>, 512, 70);
  add("DequantizeQ4e<bf16>/block_16", BenchDequantizeQ4e<bf16>, 512, 70);
  add("RmsNorm<bf16>", BenchRmsNorm<bf16>, 5120, 37);
  add("RmsNorm<float>", BenchRmsNorm<float>, 5120, 37);
  add("HeadNorm<bf16>", BenchHeadNorm<bf16>, 512, 37);
  add("RopeCosSin", BenchRopeCosSin, 64, 8);
  add("RotateInterleaved<bf16>", BenchRotate<bf16>, 64, 18);
  add("SwiGlu<bf16>", BenchSwiGlu<bf16>, 2304, 37);
  add("SwiGlu<float>", BenchSwiGlu<float>, 2304, 37);
  add("SqrtSoftplus", BenchSqrtSoftplus, 384, 37);
  add("Hadamard<bf16>", BenchHadamard<bf16>, 128, 64);
  add("NgramRows/heads", BenchNgramRows, 8, 2);
  add("GatherQuantizedRow<bf16>", BenchGatherQuantizedRow<bf16>, 256, 70);
  add("GatherRow<bf16>/4_copies", BenchGatherRow<bf16>, 5120, 37);
  add("StreamGate<bf16>", BenchStreamGate<bf16>, 5120, 37);
}

}  // namespace
}  // namespace tessera

// small_ops_bench [--smoke] [Google Benchmark's options]: --smoke runs tiny widths once.
int main(int argc, char** argv) {
  bool smoke = false;
  for (int i = 1; i < argc; ++i) smoke = smoke || std::strcmp(argv[i], "--smoke") == 0;
  tessera::Register(smoke);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
