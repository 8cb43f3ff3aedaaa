// Attention of one token's heads over given rows: 2 * 2 * heads * entries * head_dim flops, decoded rows in cache.
#include "kernels/attend.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/random.h"

namespace tessera {
namespace {

template <class T>
std::vector<T> Values(uint64_t seed, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = FromFloat<T>(static_cast<float>(UniformDouble(seed, 0, i) - 0.5));
  return values;
}

template <class T>
void AttendToken(benchmark::State& state) {
  const int64_t num_heads = state.range(0), num_entries = state.range(1), head_dim = state.range(2);
  const std::vector<T> q = Values<T>(1, num_heads * head_dim), kv = Values<T>(2, num_entries * head_dim);
  const std::vector<float> sink(static_cast<size_t>(num_heads), 0.5f);
  std::vector<T> out(q.size());
  std::vector<float> scratch(static_cast<size_t>(AttendScratchFloats(num_entries)));
  const AttendArguments<T> arguments = {MakeView(q.data(), num_heads, head_dim),
                                        MakeView(kv.data(), num_entries, head_dim),
                                        sink.data(),
                                        1 / std::sqrt(static_cast<float>(head_dim)),
                                        false,
                                        MakeView(out.data(), num_heads, head_dim),
                                        scratch.data()};
  for (auto _ : state) Attend(arguments);
  state.counters["GFLOP/s"] = benchmark::Counter(4e-9 * static_cast<double>(num_heads * num_entries * head_dim),
                                                 benchmark::Counter::kIsIterationInvariantRate);
  uint32_t hash = 2166136261u;
  for (const T& value : out) hash = (hash ^ FloatToBits(ToFloat(value))) * 16777619u;
  state.counters["hash"] = hash;
}

void Register(bool smoke) {
  const std::vector<std::vector<int64_t>> shapes =
      smoke ? std::vector<std::vector<int64_t>>{{4, 20, 64}, {33, 65, 130}}
            : std::vector<std::vector<int64_t>>{{64, 640, 512}, {32, 640, 512}, {16, 640, 512}, {8, 640, 512}, {64, 128, 512},
                                                {64, 8320, 512}, {4, 300, 64}};
  for (const auto& shape : shapes) {
    for (auto* entry : {benchmark::RegisterBenchmark("Attend<bf16>/heads/entries/head_dim", AttendToken<bf16>),
                        benchmark::RegisterBenchmark("Attend<float>/heads/entries/head_dim", AttendToken<float>)}) {
      entry->Args(shape);
      if (smoke) entry->Iterations(1);
    }
  }
}

}  // namespace
}  // namespace tessera

// attend_bench [--smoke] [Google Benchmark's options]: --smoke runs tiny shapes once.
int main(int argc, char** argv) {
  bool smoke = false;
  for (int i = 1; i < argc; ++i) smoke = smoke || std::strcmp(argv[i], "--smoke") == 0;
  tessera::Register(smoke);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
