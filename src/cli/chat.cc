// `tessera chat`: a conversation in the terminal, in the model's own chat format.
#include <editline/readline.h>
#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/generation.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "core/file.h"
#include "tokenizer/chat_parser.h"
#include "tokenizer/chat_render.h"

namespace tessera {
namespace {

constexpr const char* kHelp =
    "/help          this list\n"
    "/reset         forget the conversation\n"
    "/system TEXT   set the system message (empty: none) and start over\n"
    "/think on|off  let the model reason before it answers\n"
    "/quit          leave (so does Ctrl-D); Ctrl-C stops an answer\n";

struct ChatFlags {
  EngineOptions engine;
  GenerationFlags generation;
  std::string system;
  bool think = false;
};

constexpr int kEraseLine = 'U' - '@';  // Ctrl-U

// The next byte from the terminal. Ctrl-C reads as the key that erases the line, SIGTERM as the end of input (-1).
int ReadByte() {
  if (!InterruptGuard::WaitForInput(STDIN_FILENO)) {
    if (InterruptGuard::signal() == SIGTERM) return -1;
    InterruptGuard::ForgetInterrupt();
    return kEraseLine;
  }
  uint8_t byte = 0;
  return read(STDIN_FILENO, &byte, 1) == 1 ? byte : -1;
}

// The next character for the line editor, which wants code points: a lead byte says how many bytes follow, six bits in each.
int ReadKey(std::FILE*) {
  const int lead = ReadByte();
  if (lead < 0xc0) return lead;
  const int num_more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
  int code_point = lead & (0x3f >> num_more);
  for (int i = 0; i < num_more; ++i) {
    const int byte = ReadByte();
    if ((byte & 0xc0) != 0x80) return byte;  // not the character it began as: the rest is what was typed
    code_point = code_point << 6 | (byte & 0x3f);
  }
  return code_point;
}

// Lines from a terminal with editing and history, or from a pipe.
class LineReader {
 public:
  LineReader() : interactive_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
    if (!interactive_) return;
    // The editor drops what the locale has no characters for. Only the type of characters is taken: numbers are written as ever.
    std::setlocale(LC_CTYPE, "");
    if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
    rl_catch_signals = 0;
    rl_getc_function = ReadKey;
    using_history();
  }
  bool interactive() const { return interactive_; }
  std::optional<std::string> Next() {
    if (!interactive_) {
      std::string line;
      return std::getline(std::cin, line) ? std::optional<std::string>(line) : std::nullopt;
    }
    char* line = readline("> ");
    if (line == nullptr) return std::nullopt;
    std::string text(line);
    std::free(line);
    if (!text.empty()) add_history(text.c_str());
    return text;
  }

 private:
  bool interactive_;
};

class Conversation {
 public:
  Conversation(Engine& engine, const ChatFlags& flags)
      : engine_(engine),
        flags_(flags),
        format_(engine.config().v41() ? ChatFormat::kV41 : ChatFormat::kV4),
        system_(flags.system),
        think_(flags.think) {
    Reset();
  }

  void Reset() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }
  void SetSystem(const std::string& text) {
    system_ = text;
    Reset();
  }
  void SetThinking(bool on) { think_ = on; }

  // Streams the answer to `text` and returns the signal that ended it, 0 if none did. An interrupted answer stays in the conversation as
  // far as it came. At a terminal reasoning is shown too, and Ctrl-C pressed once more does not end the program.
  int Answer(const std::string& text, bool interactive) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    const RenderedChat rendered = RenderChat(ParseChatRequest({{"messages", messages_}, {"thinking", think_}}), format_);
    ChatParser parser(rendered.parse, *engine_.tokenizer());
    std::vector<ChatDelta> all;
    bool after_reasoning = false;
    const auto show = [&](std::vector<ChatDelta> deltas) {
      for (ChatDelta& delta : deltas) {
        const bool reasoning = delta.kind == ChatDelta::Kind::kReasoning;
        if (reasoning && interactive) PrintNow("\033[2m" + delta.text + "\033[0m");
        if (!reasoning) PrintNow((after_reasoning && interactive ? "\n" : "") + delta.text);
        after_reasoning = reasoning;
        all.push_back(std::move(delta));
      }
    };
    int signal = 0;
    try {
      const std::vector<int64_t>& eos = engine_.config().eos_token_ids;
      const auto on_event = [&](const Event& event) {
        std::vector<ChatDelta> deltas;
        if (event.token_id >= 0 && std::find(eos.begin(), eos.end(), event.token_id) == eos.end()) parser.FeedId(event.token_id, &deltas);
        show(std::move(deltas));
      };
      const InterruptGuard::Mode mode = interactive ? InterruptGuard::Mode::kEach : InterruptGuard::Mode::kOnce;
      const GenerationResult result =
          Generate(engine_, RequestOf(flags_.generation, PromptIds(rendered, *engine_.tokenizer())), on_event, mode);
      signal = result.signal;
      std::vector<ChatDelta> rest;
      parser.Finish(result.end_reason == EndReason::kLength, &rest);
      show(std::move(rest));
    } catch (const Error&) {
      messages_.erase(messages_.size() - 1);
      throw;
    }
    PrintNow("\n");
    const ParsedChat answer = CollectDeltas(all);
    Json message = {{"role", "assistant"}, {"content", answer.content}};
    if (answer.reasoning_content) message["reasoning_content"] = *answer.reasoning_content;
    messages_.push_back(std::move(message));
    return signal;
  }

 private:
  Engine& engine_;
  const ChatFlags& flags_;
  ChatFormat format_;
  std::string system_;
  bool think_;
  Json messages_;
};

// A line that starts with '/'. Returns false to leave.
bool RunSlashCommand(const std::string& line, Conversation& conversation) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
  if (name == "/quit" || name == "/exit") return false;
  if (name == "/help") {
    PrintNow(kHelp);
  } else if (name == "/reset") {
    conversation.Reset();
    PrintNow("(forgotten)\n");
  } else if (name == "/system") {
    conversation.SetSystem(rest);
    PrintNow(rest.empty() ? "(no system message; forgotten)\n" : "(system message set; forgotten)\n");
  } else if (name == "/think" && (rest == "on" || rest == "off")) {
    conversation.SetThinking(rest == "on");
    PrintNow("(thinking " + rest + ")\n");
  } else {
    const std::string nearest(NearestName(name, {"/help", "/reset", "/system", "/think", "/quit"}));
    PrintNow(name == "/think" ? "/think on or /think off\n" : name + ": unknown; the nearest is " + nearest + "\n");
  }
  return true;
}

void Chat(ChatFlags& flags, CommandContext& context) {
  if (context.json) throw UsageProblem("chat: --json has no meaning here; use run or render");
  flags.engine.model_dir = context.model_dir;
  ApplyGenerationConfig(context.model_dir, flags.generation);
  const std::unique_ptr<Engine> engine = Engine::Open(flags.engine);
  if (flags.generation.memory_plan) return Print(MemoryPlan(*engine, false));
  if (engine->tokenizer() == nullptr) Fail("{}/tokenizer.json: not there, and chat needs it", context.model_dir);
  LineReader reader;
  if (reader.interactive()) PrintNow(fmt::format("Tessera, {} · /help for commands, Ctrl-D to leave\n", context.model_dir));
  Conversation conversation(*engine, flags);
  // Between two answers too Ctrl-C leaves the conversation alone; without a terminal it ends the program, as SIGTERM always does.
  std::optional<InterruptGuard> interrupt;
  if (reader.interactive()) interrupt.emplace(InterruptGuard::Mode::kEach);
  while (const std::optional<std::string> line = reader.Next()) {
    if (line->empty()) continue;
    if (line->starts_with("/")) {
      if (!RunSlashCommand(*line, conversation)) return;
      continue;
    }
    try {
      const int signal = conversation.Answer(*line, reader.interactive());
      if (signal == SIGTERM || (signal != 0 && !reader.interactive())) {
        context.exit_code = 128 + signal;
        return;
      }
      if (reader.interactive()) InterruptGuard::ForgetInterrupt();
    } catch (const Error& error) {  // one question failed, not the conversation
      if (!reader.interactive()) throw;
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  if (reader.interactive()) PrintNow("\n");
  if (reader.interactive() && InterruptGuard::signal() == SIGTERM) context.exit_code = 128 + SIGTERM;
}

}  // namespace

void AddChatCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("chat", "a conversation in the terminal");
  auto flags = std::make_shared<ChatFlags>();
  command->add_option("--system", flags->system, "system message");
  command->add_flag("--think", flags->think, "let the model reason before it answers");
  flags->generation.max_tokens = 512;
  AddGenerationFlags(*command, flags->generation);
  AddOptionTable(*command, EngineOptionTable(flags->engine));
  command->callback([flags, &context] { Chat(*flags, context); });
}

}  // namespace tessera
