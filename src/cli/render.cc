// `tessera render`: a chat request on standard input to the prompt a model sees, byte for byte; with --parse the way back, a model's raw
// output to its parts.
#include <algorithm>
#include <memory>
#include <vector>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/output.h"
#include "core/file.h"
#include "core/options.h"
#include "tokenizer/chat_parser.h"
#include "tokenizer/chat_render.h"
#include "tokenizer/chat_request.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

// Fields of a Chat Completions body that do not change its prompt, so that a body can be piped in as it is.
constexpr std::string_view kOtherRequestKeys[] = {
    "model", "temperature", "top_p", "top_k", "min_p", "seed", "n", "max_tokens", "max_completion_tokens", "stop", "stream",
    "stream_options", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs", "parallel_tool_calls", "user"};

struct RenderFlags {
  std::string format;
  std::string thinking;
  bool parse = false;
};

// What --format says, else what the model's config says, else what its tokenizer can spell: only V4.1 has a system token.
ChatFormat FormatOf(const RenderFlags& flags, const std::string& model_dir) {
  if (!flags.format.empty()) return flags.format == "v4" ? ChatFormat::kV4 : ChatFormat::kV41;
  const std::string config_path = model_dir + "/config.json";
  if (FileExists(config_path)) return ChatFormatOf(ReadJsonFile(config_path), config_path);
  const Tokenizer tokenizer = Tokenizer::Load(model_dir);
  return tokenizer.FindToken(chat_token::kSystem).has_value() ? ChatFormat::kV41 : ChatFormat::kV4;
}

void CheckKeys(const Json& request) {
  if (!request.is_object()) return;  // refused with the request itself
  std::vector<std::string_view> known(std::begin(kChatRequestKeys), std::end(kChatRequestKeys));
  known.insert(known.end(), std::begin(kOtherRequestKeys), std::end(kOtherRequestKeys));
  for (const auto& [key, value] : request.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    Fail("standard input: {}: unknown field; the nearest is {}", OneLine(key), NearestName(key, known));
  }
}

void Render(const RenderFlags& flags, const CommandContext& context) {
  Json request = ParseJson(ReadStandardInput(), "standard input");
  CheckKeys(request);
  if (!flags.thinking.empty() && request.is_object()) request["thinking"] = flags.thinking == "on";
  const RenderedChat chat = RenderChat(ParseChatRequest(request), FormatOf(flags, context.model_dir));
  if (!context.json) return Print(chat.Text());
  const Json result = {{"prompt", chat.Text()}, {"ids", PromptIds(chat, Tokenizer::Load(context.model_dir))}};
  Print(result.dump() + "\n");
}

void Parse(const RenderFlags& flags) {
  const std::string text = ReadStandardInput();
  CheckUtf8(text, "standard input");
  const ParsedChat chat = ParseChatText(text, {.stage = flags.thinking == "off" ? ParseStage::kContent : ParseStage::kReasoning});
  Json calls = Json::array();
  for (const ParsedToolCall& call : chat.tool_calls) calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
  const Json reasoning = chat.reasoning_content.has_value() ? Json(*chat.reasoning_content) : Json(nullptr);
  const Json result = {{"reasoning_content", reasoning}, {"content", chat.content}, {"tool_calls", calls}};
  Print(result.dump() + "\n");
}

}  // namespace

void AddRenderCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("render", "a chat request (JSON on standard input) to the model's prompt, or back");
  auto flags = std::make_shared<RenderFlags>();
  command->add_option("--format", flags->format, "chat format (default: the model's)")->check(CLI::IsMember({"v4", "v4.1"}));
  command->add_flag("--parse", flags->parse, "read a model's raw output instead and print reasoning_content, content and tool_calls");
  command
      ->add_option("--thinking", flags->thinking,
                   "with --parse: does the text start inside reasoning (default on); else: overrides the request's")
      ->check(CLI::IsMember({"on", "off"}));
  command->callback([flags, &context] {
    if (flags->parse) {
      Parse(*flags);
    } else {
      Render(*flags, context);
    }
  });
}

}  // namespace tessera
