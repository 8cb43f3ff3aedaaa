// The subcommands of `tessera`. Each file adds one to the app; its callback does the work, throws Error on failure and sets exit_code where
// success has more than one. The command line translates; it decides nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tessera {

struct CommandContext {
  std::string model_dir;        // -m, or the embedded model
  bool embedded_model = false;  // it is the embedded model
  bool json = false;      // one JSON object on stdout and nothing else there
  int exit_code = 0;
};

// A check for options that name a file or directory: an empty one is a variable that was not set, not a wish for the default.
std::string RefuseEmptyName(const std::string& text);

void AddRunCommand(CLI::App& app, CommandContext& context);
void AddChatCommand(CLI::App& app, CommandContext& context);
void AddEvalCommand(CLI::App& app, CommandContext& context);
void AddInspectCommand(CLI::App& app, CommandContext& context);
void AddCheckCommand(CLI::App& app, CommandContext& context);
void AddTokenizeCommand(CLI::App& app, CommandContext& context);
void AddRenderCommand(CLI::App& app, CommandContext& context);
void AddSelfcheckCommand(CLI::App& app, CommandContext& context);
void AddBenchCommand(CLI::App& app, CommandContext& context);
void AddSynthCommand(CLI::App& app, CommandContext& context);

}  // namespace tessera
