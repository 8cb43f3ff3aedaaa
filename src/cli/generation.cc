#include "cli/generation.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <system_error>
#include <type_traits>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/json.h"
#include "core/memory_report.h"
#include "model/sequence_state.h"

namespace tessera {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string IsUnsignedNumber(const std::string& text) {
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && stop == text.data() + text.size()) return {};
  return fmt::format("{} is not a whole number from 0 to {}", text, UINT64_MAX);
}

void AddOptionTable(CLI::App& command, const OptionTable& table) {
  for (const OptionField& field : table) {
    CLI::Option* option = command.add_option_function<std::string>(
        OptionFlag(field),
        [field](const std::string& text) {
          try {
            ParseOption(field, text);
          } catch (const Error& error) {
            throw CLI::ValidationError(error.what());
          }
        },
        std::string(field.help));
    option->type_name(OptionOperand(field))->default_str(FormatOption(field));
  }
}

void AddGenerationFlags(CLI::App& command, GenerationFlags& flags) {
  command.add_option("-n,--max-tokens", flags.max_tokens, "new tokens at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  flags.temperature =
      command.add_option("--temperature", flags.sampling.temperature, "0: greedy (default: generation_config.json, else 1)");
  flags.top_p = command.add_option("--top-p", flags.sampling.top_p,
                                   "keep the most probable tokens that sum to this (default: generation_config.json)");
  flags.top_k = command.add_option("--top-k", flags.sampling.top_k, "keep this many of the most probable tokens; 0: all");
  command.add_option("--min-p", flags.sampling.min_p, "keep tokens at least this times as probable as the best")->capture_default_str();
  command.add_option("--seed", flags.sampling.seed, "the same seed and prompt give the same text")
      ->check(IsUnsignedNumber)
      ->capture_default_str();
  // One text each time: a second would be the PROMPT.
  command.add_option("--stop", flags.stop, "a text that ends the answer; may be repeated")->allow_extra_args(false);
  command.add_flag("--ignore-eos", flags.ignore_eos, "go on after the end token");
  command.add_flag("--memory-plan", flags.memory_plan, "print what needs how much memory, and exit");
}

void ApplyGenerationConfig(const std::string& model_dir, GenerationFlags& flags) {
  const std::string path = model_dir + "/generation_config.json";
  if (!FileExists(path)) return;
  const Json config = ReadJsonFile(path);
  const auto apply = [&](CLI::Option* option, const char* name, auto& value) {
    if (option->count() > 0 || !config.contains(name)) return;
    using Value = std::decay_t<decltype(value)>;
    if (!config[name].is_number()) Fail("{}: {}: a number was expected", path, name);
    const double number = config[name].get<double>();
    const double largest = static_cast<double>(std::numeric_limits<Value>::max());
    if (std::fabs(number) > largest || (std::is_integral_v<Value> && number != std::trunc(number)))
      Fail("{}: {}: {} is not {} number in its range", path, name, config[name].dump(), std::is_integral_v<Value> ? "a whole" : "a");
    value = static_cast<Value>(number);
  };
  if (config.contains("do_sample") && config["do_sample"] == false && flags.temperature->count() == 0)
    flags.sampling.temperature = 0;
  else
    apply(flags.temperature, "temperature", flags.sampling.temperature);
  apply(flags.top_p, "top_p", flags.sampling.top_p);
  apply(flags.top_k, "top_k", flags.sampling.top_k);
}

GenerationResult Generate(Engine& engine, Request request, const std::function<void(const Event&)>& on_event, InterruptGuard::Mode mode) {
  GenerationResult result;
  const InterruptGuard interrupt(mode);
  const Ticket ticket = engine.Submit(std::move(request));
  const auto start = std::chrono::steady_clock::now();
  auto first_token = start;
  std::vector<Event> events;
  while (result.end_reason == EndReason::kNone) {
    if (interrupt.signal() != 0 && result.signal == 0) {
      result.signal = interrupt.signal();
      engine.Cancel(ticket);
    }
    events.clear();
    engine.Step(events);
    for (const Event& event : events) {
      if (event.token_id >= 0) {
        if (result.output_ids.empty()) {
          first_token = std::chrono::steady_clock::now();
          result.prefill_seconds = SecondsSince(start);
        }
        result.output_ids.push_back(event.token_id);
      }
      result.text += event.text;
      result.end_reason = event.end_reason;
      if (event.end_reason == EndReason::kError) Fail("{}", event.error);
      on_event(event);
    }
  }
  if (!result.output_ids.empty()) result.decode_seconds = SecondsSince(first_token);
  return result;
}

std::string MemoryPlan(Engine& engine, bool json) {
  StepRunner& runner = engine.runner();
  MemoryReport report;
  int64_t weight_bytes = 0;
  for (const MappedFile& file : engine.model().checkpoint().files()) weight_bytes += static_cast<int64_t>(file.bytes().size());
  report.Add("weights", weight_bytes, "mapped read-only, shared with the page cache");
  const int64_t sequence_bytes = SequenceStateBytes(runner.cache().layouts(), runner.max_context());
  report.Add("sequence state", sequence_bytes * runner.options().max_seqs,
             fmt::format("{} sequences of {} tokens, paid as used", runner.options().max_seqs, runner.max_context()));
  report.Add("activations", static_cast<int64_t>(runner.plans().activation_bytes()), fmt::format("bucket of {} rows", runner.rows_max()));
  report.Add("worker scratch", static_cast<int64_t>(runner.plans().scratch_bytes()) * runner.options().num_workers,
             fmt::format("{} workers", runner.options().num_workers));
  const AvailableMemory available = QueryAvailableMemory();
  return json ? report.ToJson(available).dump() + "\n" : report.Table(available);
}

}  // namespace tessera
