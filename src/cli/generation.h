// Options and loop shared by the commands that generate: sampling flags over the defaults of generation_config.json, and running one
// request.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "engine/engine.h"

namespace tessera {

// Adds the fields of an option table as --flags of a command.
void AddOptionTable(CLI::App& command, const OptionTable& table);

// A check for unsigned options: negative and too large numbers, which the conversion would wrap or cut.
std::string IsUnsignedNumber(const std::string& text);

struct GenerationFlags {
  CLI::Option* temperature = nullptr;
  CLI::Option* top_p = nullptr;
  CLI::Option* top_k = nullptr;
  CLI::Option* repetition_penalty = nullptr;
  int64_t max_tokens = 128;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  bool memory_plan = false;
};
void AddGenerationFlags(CLI::App& command, GenerationFlags& flags);
// "0,17,3": token ids from a flag. Throws a usage error for what is no number, Error for a number that no vocabulary has.
std::vector<int32_t> ParseTokenIds(const std::string& flag, const std::string& text);
// Fills what the user did not set from <model_dir>/generation_config.json, where there is one.
void ApplyGenerationConfig(const std::string& model_dir, GenerationFlags& flags);

// The request for a prompt that the flags describe.
Request RequestOf(const GenerationFlags& flags, std::vector<int32_t> prompt_ids);

struct GenerationResult {
  std::vector<int32_t> output_ids;                  // with the end token, where it ended the answer
  std::vector<LogProbabilities> log_probabilities;  // one per output id, when asked for
  std::string text;
  EndReason end_reason = EndReason::kNone;
  int signal = 0;  // the signal that ended it early
  Usage usage;
};
// Runs one request to its end or to a signal; `on_event` sees every event. Throws Error when the request fails.
GenerationResult Generate(Engine& engine, Request request, const std::function<void(const Event&)>& on_event,
                          InterruptGuard::Mode mode = InterruptGuard::Mode::kOnce);

// The ledger of --memory-plan.
std::string MemoryPlan(Engine& engine, bool json);

}  // namespace tessera
