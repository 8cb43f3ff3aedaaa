#include "cli/generation.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <system_error>
#include <type_traits>
#include <utility>

#include "cli/output.h"
#include "core/check.h"
#include "core/file.h"
#include "core/json.h"
#include "core/memory_report.h"

namespace tessera {
namespace {

// The pieces of "a,b,c".
std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> pieces(1);
  for (const char c : text) {
    if (c == ',')
      pieces.emplace_back();
    else
      pieces.back() += c;
  }
  return pieces;
}

// All of the text as a number.
template <class Number>
bool ParseAll(const std::string& text, Number& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

// "17:-100,3:2.5"
std::vector<LogitBias> ParseLogitBias(const std::string& text) {
  std::vector<LogitBias> biases;
  for (const std::string& piece : SplitAtCommas(text)) {
    const size_t colon = std::min(piece.find(':'), piece.size());
    LogitBias bias;
    if (colon == piece.size() || !ParseAll(piece.substr(0, colon), bias.token_id) || !ParseAll(piece.substr(colon + 1), bias.bias))
      throw UsageProblem("--logit-bias: '" + piece + "' is not a token id and a bias, as in 17:-2.5");
    biases.push_back(bias);
  }
  return biases;
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
  flags.repetition_penalty =
      command.add_option("--repetition-penalty", flags.sampling.repetition_penalty,
                         "divide the logits of tokens that the prompt or the answer has (default: generation_config.json, else 1)");
  command.add_option("--presence-penalty", flags.sampling.presence_penalty, "lower the logits of tokens that the answer has, -2 to 2")
      ->capture_default_str();
  command
      .add_option("--frequency-penalty", flags.sampling.frequency_penalty,
                  "lower them by this as often as the answer has them, -2 to 2")
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--logit-bias", [&flags](const std::string& text) { flags.sampling.logit_bias = ParseLogitBias(text); },
          "add to the logits of tokens, -100 (never) to 100: 17:-100,3:2.5")
      ->type_name("ID:BIAS,...");
  command
      .add_option_function<std::string>(
          "--stop-ids", [&flags](const std::string& text) { flags.stop_ids = ParseTokenIds("--stop-ids", text); },
          "token ids that end the answer: 1,2")
      ->type_name("ID,...");
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
  apply(flags.repetition_penalty, "repetition_penalty", flags.sampling.repetition_penalty);
}

std::vector<int32_t> ParseTokenIds(const std::string& flag, const std::string& text) {
  std::vector<int32_t> ids;
  for (const std::string& piece : SplitAtCommas(text)) {
    int64_t value = -1;
    if (!ParseAll(piece, value)) throw UsageProblem(flag + ": '" + piece + "' is not a token id");
    if (value < 0 || value > INT32_MAX) Fail("{}: {} is outside every vocabulary", flag, value);
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

Request RequestOf(const GenerationFlags& flags, std::vector<int32_t> prompt_ids) {
  Request request;
  request.prompt_ids = std::move(prompt_ids);
  request.sampling = flags.sampling;
  request.max_tokens = flags.max_tokens;
  request.ignore_eos = flags.ignore_eos;
  request.stop = flags.stop;
  request.stop_ids = flags.stop_ids;
  return request;
}

GenerationResult Generate(Engine& engine, Request request, const std::function<void(const Event&)>& on_event, InterruptGuard::Mode mode) {
  GenerationResult result;
  const InterruptGuard interrupt(mode);
  const Ticket ticket = engine.Submit(std::move(request));
  std::vector<Event> events;
  while (result.end_reason == EndReason::kNone) {
    if (interrupt.signal() != 0 && result.signal == 0) {
      result.signal = interrupt.signal();
      engine.Cancel(ticket);
    }
    events.clear();
    engine.Step(events);
    for (const Event& event : events) {
      if (event.token_id >= 0) result.output_ids.push_back(event.token_id);
      if (event.log_probabilities) result.log_probabilities.push_back(*event.log_probabilities);
      result.text += event.text;
      result.end_reason = event.end_reason;
      result.usage = event.usage;
      if (event.end_reason == EndReason::kError) Fail("{}", event.error);
      on_event(event);
    }
  }
  return result;
}

std::string MemoryPlan(Engine& engine, bool json) {
  StepRunner& runner = engine.runner();
  MemoryReport report;
  int64_t weight_bytes = 0;
  for (const MappedFile& file : engine.model().checkpoint().files()) weight_bytes += static_cast<int64_t>(file.bytes().size());
  report.Add("weights", weight_bytes, "mapped read-only, shared with the page cache");
  const Admission& admission = engine.admission();
  const int64_t sequence_bytes = admission.BytesFor(runner.max_context());
  report.Add("sequence state", admission.budget_bytes(),
             fmt::format("budget of up to {} sequences, paid as used; {:.0f} B a token, {} for one of {} tokens", runner.options().max_seqs,
                         admission.bytes_per_token(), FormatBytes(sequence_bytes), runner.max_context()));
  report.Add("prefix cache", engine.prefix_cache().stats().budget_bytes, "paid as used");
  report.Add("activations", static_cast<int64_t>(runner.plans().activation_bytes()), fmt::format("bucket of {} rows", runner.rows_max()));
  report.Add("worker scratch", static_cast<int64_t>(runner.plans().scratch_bytes()) * runner.options().num_workers,
             fmt::format("{} workers", runner.options().num_workers));
  const AvailableMemory available = QueryAvailableMemory();
  if (!json) return report.Table(available);
  Json plan = report.ToJson(available);
  plan["sequence_state"] = {{"bytes_per_token", admission.bytes_per_token()},
                            {"bytes_per_sequence", sequence_bytes},
                            {"max_context", runner.max_context()},
                            {"max_seqs", runner.options().max_seqs},
                            {"budget_bytes", admission.budget_bytes()}};
  return plan.dump() + "\n";
}

}  // namespace tessera
