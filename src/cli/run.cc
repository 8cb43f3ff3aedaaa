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
  bool no_bos = false;
};

// "0,17,3"
std::vector<int32_t> ParseIds(const std::string& text) {
  std::vector<int32_t> ids;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    size_t used = 0;
    long long value = -1;
    try {
      value = std::stoll(item, &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (item.empty() || used != item.size()) throw UsageProblem("--ids: '" + item + "' is not a token id");
    if (value < 0 || value > INT32_MAX) Fail("--ids: {} is outside every vocabulary", value);
    ids.push_back(static_cast<int32_t>(value));
    begin = end + 1;
  }
  return ids;
}

std::vector<int32_t> PromptIdsOf(const RunFlags& flags, const Engine& engine) {
  if (flags.ids_option->count() > 0) {
    if (flags.ids.empty()) throw UsageProblem("--ids: at least one token id is needed");
    return ParseIds(flags.ids);
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

Json ResultJson(const std::vector<int32_t>& prompt_ids, const GenerationResult& result) {
  const auto rate = [](double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0.0; };
  const double num_prompt = static_cast<double>(prompt_ids.size()), num_output = static_cast<double>(result.output_ids.size());
  Json json;
  json["prompt_ids"] = prompt_ids;
  json["output_ids"] = result.output_ids;
  json["text"] = result.text;
  json["finish_reason"] = EndReasonName(result.end_reason);
  json["timing"] = {{"prefill_tokens", prompt_ids.size()},
                    {"prefill_seconds", result.prefill_seconds},
                    {"prefill_tokens_per_s", rate(num_prompt, result.prefill_seconds)},
                    {"decode_tokens", result.output_ids.empty() ? 0 : result.output_ids.size() - 1},
                    {"decode_seconds", result.decode_seconds},
                    {"decode_tokens_per_s", rate(std::max(0.0, num_output - 1), result.decode_seconds)}};
  return json;
}

void Run(RunFlags& flags, CommandContext& context) {
  flags.engine.model_dir = context.model_dir;
  ApplyGenerationConfig(context.model_dir, flags.generation);
  const std::unique_ptr<Engine> engine = Engine::Open(flags.engine);
  if (flags.generation.memory_plan) return Print(MemoryPlan(*engine, context.json));
  Request request;
  request.prompt_ids = PromptIdsOf(flags, *engine);
  request.sampling = flags.generation.sampling;
  request.max_tokens = flags.generation.max_tokens;
  request.ignore_eos = flags.generation.ignore_eos;
  request.stop = flags.generation.stop;
  const std::vector<int32_t> prompt_ids = request.prompt_ids;
  const GenerationResult result = Generate(*engine, std::move(request), [&](const Event& event) {
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
  AddOptionTable(*command, EngineOptionTable(flags->engine));
  command->callback([flags, &context] { Run(*flags, context); });
}

}  // namespace tessera
