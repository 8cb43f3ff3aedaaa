#include "engine/bench_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/check.h"
#include "core/random.h"
#include "engine/context_fill.h"
#include "engine/profile.h"
#include "kernels/tier.h"
#include "model/encoder_shortcut.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kPromptStream = uint64_t{1} << 40;  // of random numbers; the steps of decode count from 0

// Ids of the sequences in one step: random, and different from each other as far as the vocabulary goes, so that no two rows are routed
// alike for being the same token.
std::vector<int32_t> DistinctIds(uint64_t seed, uint64_t stream, int64_t count, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    auto id = static_cast<int32_t>(UniformDouble(seed, stream, static_cast<uint64_t>(i)) * static_cast<double>(vocab_size));
    for (int64_t tries = 0; tries < vocab_size && std::find(ids.begin(), ids.end(), id) != ids.end(); ++tries)
      id = static_cast<int32_t>((id + 1) % vocab_size);
    ids.push_back(id);
  }
  return ids;
}

class Bench {
 public:
  Bench(StepRunner& runner, const BenchOptions& options)
      : runner_(runner), options_(options), config_(runner.model().config()), buffer_(options.stream_mib << 20, runner.pool()) {
    prompt_.reserve(static_cast<size_t>(options.prefill));
    for (int64_t i = 0; i < options.prefill; ++i)
      prompt_.push_back(static_cast<int32_t>(UniformDouble(options.seed, kPromptStream, static_cast<uint64_t>(i)) *
                                             static_cast<double>(config_.vocab_size)));
  }

  // Seconds of decoding `decode` tokens on every sequence. One step before them is not counted: it brings the caches into the state that
  // one step leaves for the next.
  double DecodeSeconds() {
    FillContexts(options_.batch);
    DecodeStep(0);
    if (timing_ != nullptr) timing_->Clear();
    const Clock::time_point begin = Clock::now();
    for (int64_t step_idx = 1; step_idx <= options_.decode; ++step_idx) DecodeStep(step_idx);
    return SecondsSince(begin);
  }

  // Seconds of a prompt in chunks of `chunk_rows`.
  double PrefillSeconds(int64_t chunk_rows) {
    FillContexts(1);
    const Clock::time_point begin = Clock::now();
    for (int64_t first = 0; first < options_.prefill; first += chunk_rows) {
      const int64_t rows = std::min(chunk_rows, options_.prefill - first);
      runner_.step().Clear();
      runner_.step().AddSegment(0, options_.context + first, prompt_.data() + first, static_cast<int32_t>(rows),
                                first + rows == options_.prefill ? 1 : 0);
      SetDepths(config_, {options_.context + options_.prefill}, runner_.step());
      runner_.Replay();
    }
    return SecondsSince(begin);
  }

  // Repeats seconds() with passes of the machine's limits in between, then once more with clocks between the ops.
  template <class F>
  PhaseReport Measure(int64_t num_steps, int64_t num_tokens, F&& seconds) {
    PhaseReport report;
    report.num_steps = num_steps;
    report.num_tokens = num_tokens;
    std::vector<double> rates;
    seconds();
    for (int64_t repeat = 0; repeat < options_.repeat; ++repeat) {
      MeasureLimits();
      rates.push_back(static_cast<double>(num_tokens) / seconds());
    }
    MeasureLimits();
    report.tokens_per_s = SpreadOf(std::move(rates));

    Timing timing = MakeProfile(static_cast<int32_t>(num_steps + 1));
    timing_ = &timing;
    runner_.SetTiming(&timing);
    seconds();
    runner_.SetTiming(nullptr);
    timing_ = nullptr;
    report.timing = ProfileReports(timing);
    OpCost cost;
    for (const TimingReport& bucket : report.timing) {
      cost += {bucket.step.bytes, bucket.step.flops};
      report.rows_per_step = std::max<int64_t>(report.rows_per_step, bucket.num_rows_max);
    }
    report.bytes_per_step = static_cast<double>(cost.bytes) / static_cast<double>(num_steps);
    report.flops_per_step = static_cast<double>(cost.flops) / static_cast<double>(num_steps);
    return report;
  }

  MachineRates Rates() {
    return {runner_.pool().num_workers(), SpreadOf(stream_), {}, SpreadOf(fma_), SpreadOf(bf16_dot_)};
  }

 private:
  static double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

  void MeasureLimits() {
    StreamPass(runner_.pool(), buffer_, stream_);
    FmaPass(runner_.pool(), options_.dot_loops, fma_);
    Bf16DotPass(runner_.pool(), options_.dot_loops, bf16_dot_);
  }

  // The same bytes before every repeat: a step overwrites what the window and the compressors remember, and the routing must stay.
  void FillContexts(int64_t num_slots) {
    if (options_.context == 0) return;
    for (int64_t slot = 0; slot < num_slots; ++slot)
      FillContext(runner_.cache(), config_, runner_.options().numerics, static_cast<int32_t>(slot), options_.context, options_.seed);
  }

  void DecodeStep(int64_t step_idx) {
    const std::vector<int32_t> ids = DistinctIds(options_.seed, static_cast<uint64_t>(step_idx), options_.batch, config_.vocab_size);
    runner_.step().Clear();
    for (int64_t slot = 0; slot < options_.batch; ++slot)
      runner_.step().AddSegment(static_cast<int32_t>(slot), options_.context + step_idx, &ids[static_cast<size_t>(slot)], 1, 1);
    runner_.Replay();
  }

  StepRunner& runner_;
  const BenchOptions& options_;
  const ModelConfig& config_;
  RateBuffer buffer_;
  std::vector<int32_t> prompt_;
  Timing* timing_ = nullptr;
  std::vector<double> stream_, fma_, bf16_dot_;
};

void CheckFits(const StepRunner& runner, const BenchOptions& options) {
  if (options.batch > runner.options().max_seqs)
    Fail("a batch of {} sequences does not fit: --max-seqs is {}", options.batch, runner.options().max_seqs);
  if (BenchContext(options) > runner.max_context())
    Fail("{} tokens a sequence are needed, its context holds {} (--max-context)", BenchContext(options), runner.max_context());
}

}  // namespace

OptionTable BenchOptionTable(BenchOptions& options) {
  return {
      {"prefill", "tokens of a prompt, processed in chunks of --prefill-rows; 0: no prefill", &options.prefill, {0, 1 << 24}},
      {"decode", "tokens that each sequence decodes in a repeat; 0: no decode", &options.decode, {0, 1 << 20}},
      {"batch", "sequences that decode together", &options.batch, {1, 4096}},
      {"context", "tokens in the caches before the first measured one, filled with random codes", &options.context, {0, 1e9}},
      {"repeat", "measured repeats, after one that is not", &options.repeat, {1, 10000}},
      {"stream_mib", "MiB of memory that the read bandwidth is measured on", &options.stream_mib, {1, 1 << 20}},
      {"seed", "of token ids and contexts", &options.seed},
  };
}

double PhaseReport::outside_share() const {
  double outside = 0, total = 0;
  for (const TimingReport& bucket : timing) {
    outside += bucket.outside.seconds_total;
    total += bucket.step.seconds_total;
  }
  return total > 0 ? outside / total : 0;
}

int64_t BenchContext(const BenchOptions& options) { return options.context + std::max(options.decode + 1, options.prefill); }

BenchReport RunBench(StepRunner& runner, const BenchOptions& options, const std::function<void(const std::string&)>& progress) {
  CheckFits(runner, options);
  BenchReport report;
  report.options = options;
  report.tier = TierName(ActiveTier());
  Bench bench(runner, options);
  if (options.prefill > 0) {
    const int64_t chunk_rows = runner.options().prefill_rows;
    progress(fmt::format("prefill of {} tokens, {} repeats", options.prefill, options.repeat));
    report.prefill = bench.Measure((options.prefill + chunk_rows - 1) / chunk_rows, options.prefill,
                                   [&] { return bench.PrefillSeconds(chunk_rows); });
    if (options.token_by_token) {
      progress("the same prompt token by token");
      report.token_by_token_tokens_per_s = static_cast<double>(options.prefill) / bench.PrefillSeconds(1);
    }
  }
  if (options.decode > 0) {
    progress(fmt::format("decode of {} tokens on {} sequences, {} repeats", options.decode, options.batch, options.repeat));
    report.decode = bench.Measure(options.decode, options.decode * options.batch, [&] { return bench.DecodeSeconds(); });
  }
  report.rates = bench.Rates();
  return report;
}

}  // namespace tessera
