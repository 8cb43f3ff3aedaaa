// `tessera bench`: decode and prefill of a model beside the limits of the machine, or the limits alone.
#include "engine/bench_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/generation.h"
#include "cli/output.h"
#include "engine/bench_report.h"
#include "engine/engine.h"
#include "kernels/machine_rate.h"
#include "kernels/tier.h"

namespace tessera {
namespace {

constexpr int64_t kDefaultPrefill = 512;
constexpr int64_t kDefaultDecode = 64;
constexpr int64_t kDefaultMaxContext = 32768;

struct BenchFlags {
  EngineOptions engine;
  BenchOptions bench;
  bool stream = false;
  bool profile = false;
  bool memory_plan = false;
};

// A line that the next one overwrites; nothing where nobody watches.
void ShowProgress(const std::string& line) {
  if (isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\r\033[K%s", line.c_str());
}

int NumWorkers(const BenchFlags& flags) { return flags.engine.threads > 0 ? flags.engine.threads : NumUsableCores(); }

// Rates of one worker and of all, and the dot rates of the tiers below the active one.
MachineReport MeasureMachines(const BenchFlags& flags) {
  MachineReport report;
  report.tier = TierName(ActiveTier());
  MachineRateOptions options;
  options.passes = static_cast<int>(flags.bench.repeat);
  const int num_workers = NumWorkers(flags);
  for (const int workers : {1, num_workers}) {
    if (workers == 1 && num_workers == 1 && !report.by_workers.empty()) continue;
    ShowProgress(fmt::format("limits with {} workers", workers));
    WorkerPool pool({.num_workers = workers});
    const RateBuffer buffer(flags.bench.stream_mib << 20, pool);
    report.by_workers.push_back(MeasureMachine(pool, buffer, options));
  }
  const Tier active = ActiveTier();
  WorkerPool pool({.num_workers = num_workers});
  for (int tier = static_cast<int>(active) - 1; tier >= 0; --tier) {
    SetActiveTier(static_cast<Tier>(tier));
    std::vector<double> fma;
    for (int pass = 0; pass < options.passes; ++pass) FmaPass(pool, options.dot_loops, fma);
    MachineRates rates;
    rates.num_workers = num_workers;
    rates.fma_gflop_per_s = SpreadOf(std::move(fma));
    report.lower_tiers.emplace_back(TierName(static_cast<Tier>(tier)), rates);
  }
  SetActiveTier(active);
  return report;
}

void Bench(BenchFlags& flags, const CommandContext& context) {
  BenchOptions& bench = flags.bench;
  if (flags.stream) {
    if (bench.prefill > 0 || bench.decode > 0) throw UsageProblem("--stream measures the machine alone: leave out --prefill and --decode");
    const MachineReport report = MeasureMachines(flags);
    ShowProgress("");
    return Print(context.json ? MachineToJson(report).dump(2) + "\n" : MachineToText(report));
  }
  if (bench.prefill == 0 && bench.decode == 0) bench.prefill = kDefaultPrefill, bench.decode = kDefaultDecode;
  if (bench.token_by_token && bench.prefill == 0) throw UsageProblem("--token-by-token: --prefill says how many");
  flags.engine.model_dir = context.model_dir;
  flags.engine.max_seqs = std::max(flags.engine.max_seqs, static_cast<int>(bench.batch));
  if (flags.engine.max_context == 0 && BenchContext(bench) > kDefaultMaxContext) flags.engine.max_context = BenchContext(bench);
  const std::unique_ptr<Engine> engine = Engine::Open(flags.engine);
  if (flags.memory_plan) return Print(MemoryPlan(*engine, context.json));
  const BenchReport report = RunBench(engine->runner(), bench, ShowProgress);
  ShowProgress("");
  Print(context.json ? BenchToJson(report, flags.profile).dump(2) + "\n" : BenchToText(report, flags.profile));
}

}  // namespace

void AddBenchCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("bench", "measures decode and prefill beside the machine's limits, or those alone");
  const auto flags = std::make_shared<BenchFlags>();
  AddOptionTable(*command, BenchOptionTable(flags->bench));
  CLI::Option* stream =
      command->add_flag("--stream", flags->stream, "only the machine: read bandwidth, gather rate and dot peak, one worker and all");
  command->add_flag("--token-by-token", flags->bench.token_by_token, "also process the prompt one token a step");
  command->add_flag("--profile", flags->profile, "where the time goes, by region");
  command->add_flag("--memory-plan", flags->memory_plan, "print what needs how much memory, and exit");
  AddOptionTable(*command, EngineOptionTable(flags->engine));
  for (const char* name : {"--batch", "--context", "--profile", "--token-by-token", "--memory-plan"})
    stream->excludes(command->get_option(name));
  command->callback([flags, &context] { Bench(*flags, context); });
}

}  // namespace tessera
