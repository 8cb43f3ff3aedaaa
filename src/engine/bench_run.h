// Measures decode and prefill of a model on a runner, beside the limits of the machine taken in the same run: passes of the memory stream
// and of the dot instruction alternate with the repeats, because machines change from second to second. Bytes and flops are those of the
// ops' costs over the same steps, so they follow the routing that was taken (plan/plan.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/options.h"
#include "engine/step_runner.h"
#include "kernels/machine_rate.h"
#include "plan/timing.h"

namespace tessera {

struct BenchOptions {
  int64_t prefill = 0;          // tokens of one prompt, in chunks of the runner's prefill bucket; 0: none
  int64_t decode = 0;           // tokens that each sequence decodes; 0: none
  int64_t batch = 1;            // sequences that decode together
  int64_t context = 0;          // tokens in the caches before the first one measured, filled with random codes
  int64_t repeat = 5;           // measured repeats, after one that is not
  uint64_t seed = 0;            // of token ids and contexts
  bool token_by_token = false;  // also the prompt one token a step
  int64_t stream_mib = 2048;    // read by a pass of the stream; several times the last cache, or it is the cache that is measured
  int64_t dot_loops = 4'000'000;  // of a pass of the dot instruction, about 20 ms
};
// What the user may set with a value.
OptionTable BenchOptionTable(BenchOptions& options);
// Tokens a sequence must have room for.
int64_t BenchContext(const BenchOptions& options);

struct PhaseReport {
  int64_t num_steps = 0;      // of one repeat
  int64_t num_tokens = 0;     // of one repeat
  int64_t rows_per_step = 0;  // of the largest step
  RateSpread tokens_per_s;    // over the repeats
  double bytes_per_step = 0;  // means over the steps of a repeat
  double flops_per_step = 0;
  std::vector<TimingReport> timing;  // of one more repeat, with clocks between the ops

  double steps_per_s() const { return tokens_per_s.median * static_cast<double>(num_steps) / static_cast<double>(num_tokens); }
  double outside_share() const;  // of the time of steps, in no region
  double gb_per_s() const { return bytes_per_step * steps_per_s() / 1e9; }
  double gflop_per_s() const { return flops_per_step * steps_per_s() / 1e9; }
};

struct BenchReport {
  BenchOptions options;
  std::string tier;
  MachineRates rates;  // of the runner's workers, without gather
  std::optional<PhaseReport> decode, prefill;
  double token_by_token_tokens_per_s = 0;  // 0: not measured
};

// Uses the runner's slots 0 ... batch - 1, whatever was in them. Throws Error when batch or context do not fit the runner. `progress` is
// called before each part with a line for a terminal.
BenchReport RunBench(StepRunner& runner, const BenchOptions& options, const std::function<void(const std::string&)>& progress);

}  // namespace tessera
