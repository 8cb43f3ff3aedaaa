// `tessera run`: generates from a raw prompt and streams the text.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/generation.h"
#include "cli/output.h"
#include "core/file.h"

namespace tessera {
namespace {

constexpr size_t kPromptBytesMax = size_t{1} << 28;

struct RunFlags {
  EngineOptions engine;
  GenerationFlags generation;
  std::string prompt;
  std::string prompt_file;
  std::string ids;
  CLI::Option* prompt_option = nullptr;
  CLI::Option* prompt_file_option = nullptr;
  CLI::Option* ids_option = nullptr;
  CLI::Option* logprobs_option = nullptr;
  bool no_bos = false;
};

std::vector<int32_t> PromptIdsOf(const RunFlags& flags, const Engine& engine) {
  if (flags.ids_option->count() > 0) {
    if (flags.ids.empty()) throw UsageProblem("--ids: at least one token id is needed");
    return ParseTokenIds("--ids", flags.ids);
  }
  const std::string text = flags.prompt_file_option->count() > 0 ? ReadFile(flags.prompt_file, kPromptBytesMax) : flags.prompt;
  if (engine.tokenizer() == nullptr) Fail("{}/tokenizer.json: not there, and a text prompt needs it: give --ids", flags.engine.model_dir);
  std::vector<int32_t> ids;
  try {
    ids = engine.tokenizer()->Encode(text);
  } catch (const Error& error) {
    Fail("{}: {}", flags.prompt_file_option->count() > 0 ? flags.prompt_file : "prompt", error.what());
  }
  if (!flags.no_bos) ids.insert(ids.begin(), static_cast<int32_t>(engine.config().bos_token_id));
  return ids;
}

// One object per output id. All are finite: what the model rules out is neither drawn nor listed.
Json LogProbabilitiesJson(const GenerationResult& result) {
  const auto entry = [](int32_t token_id, double log_probability) -> Json {
    return {{"token_id", token_id}, {"logprob", log_probability}};
  };
  Json list = Json::array();
  for (size_t i = 0; i < result.log_probabilities.size(); ++i) {
    const LogProbabilities& logs = result.log_probabilities[i];
    Json token = entry(result.output_ids[i], logs.drawn);
    token["top"] = Json::array();
    for (int k = 0; k < logs.num_top; ++k)
      token["top"].push_back(entry(logs.top[static_cast<size_t>(k)].token_id, logs.top[static_cast<size_t>(k)].log_probability));
    list.push_back(std::move(token));
  }
  return list;
}

Json ResultJson(const std::vector<int32_t>& prompt_ids, const GenerationResult& result) {
  const auto rate = [](int64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0; };
  const auto num_prompt = static_cast<int64_t>(prompt_ids.size());
  const int64_t num_decoded = std::max<int64_t>(0, static_cast<int64_t>(result.output_ids.size()) - 1);
  Json json;
  json["prompt_ids"] = prompt_ids;
  json["output_ids"] = result.output_ids;
  json["text"] = result.text;
  json["finish_reason"] = EndReasonName(result.end_reason);
  json["timing"] = {{"prefill_tokens", num_prompt},
                    {"prefill_seconds", result.usage.first_token_s},
                    {"prefill_tokens_per_s", rate(num_prompt, result.usage.first_token_s)},
                    {"decode_tokens", num_decoded},
                    {"decode_seconds", result.usage.decode_s},
                    {"decode_tokens_per_s", rate(num_decoded, result.usage.decode_s)}};
  if (!result.log_probabilities.empty()) json["logprobs"] = LogProbabilitiesJson(result);
  return json;
}

void Run(RunFlags& flags, CommandContext& context) {
  if (flags.logprobs_option->count() > 0 && !context.json) throw UsageProblem("--logprobs: only --json shows them");
  flags.engine.model_dir = context.model_dir;
  ApplyGenerationConfig(context.model_dir, flags.generation);
  const std::unique_ptr<Engine> engine = Engine::Open(flags.engine);
  if (flags.generation.memory_plan) return Print(MemoryPlan(*engine, context.json));
  const std::vector<int32_t> prompt_ids = PromptIdsOf(flags, *engine);
  const GenerationResult result = Generate(*engine, RequestOf(flags.generation, prompt_ids), [&](const Event& event) {
    if (!context.json && !event.text.empty()) PrintNow(event.text);
  });
  Print(context.json ? ResultJson(prompt_ids, result).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n" : "\n");
  if (result.signal != 0) context.exit_code = 128 + result.signal;
}

}  // namespace

void AddRunCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("run", "generates from a raw prompt and streams the text");
  auto flags = std::make_shared<RunFlags>();
  flags->prompt_option = command->add_option("PROMPT", flags->prompt, "text to go on from; empty: the begin token alone");
  flags->prompt_file_option = command->add_option("--prompt-file", flags->prompt_file, "read the prompt from a file");
  flags->ids_option = command->add_option("--ids", flags->ids, "token ids instead of text: 0,17,3 (no begin token is put in front)");
  flags->prompt_file_option->excludes(flags->prompt_option);
  flags->ids_option->excludes(flags->prompt_option)->excludes(flags->prompt_file_option)->expected(1);
  command->add_flag("--no-bos", flags->no_bos, "do not put the begin token in front of a text prompt");
  AddGenerationFlags(*command, flags->generation);
  flags->logprobs_option = command->add_option("--logprobs", flags->generation.sampling.top_logprobs,
                                               "with --json: log probabilities of each token and of this many most probable ones")
                               ->check(CLI::Range(0, kTopLogProbsMax));
  flags->engine.prefix_cache_mib = 0;  // one request: no text comes after it that could begin like it
  AddOptionTable(*command, EngineOptionTable(flags->engine));
  command->callback([flags, &context] { Run(*flags, context); });
}

}  // namespace tessera
