// `tessera selfcheck`: proves this machine and build in seconds: every tier against the scalar one, and the embedded model's known answer.
#include "engine/selfcheck.h"

#include "cli/commands.h"
#include "cli/output.h"
#include "core/json.h"

namespace tessera {
namespace {

void Selfcheck(CommandContext& context) {
  const std::vector<CheckResult> results = RunSelfcheck(context.model_dir);
  Json json = Json::array();
  bool all_passed = true;
  for (const CheckResult& result : results) {
    all_passed = all_passed && result.passed;
    json.push_back({{"check", result.name}, {"passed", result.passed}, {"detail", result.detail}});
    if (!context.json) PrintNow(fmt::format("{} {}: {}\n", result.passed ? "ok  " : "FAIL", result.name, result.detail));
  }
  if (context.json) Print(Json{{"passed", all_passed}, {"checks", json}}.dump() + "\n");
  context.exit_code = all_passed ? 0 : 1;
}

}  // namespace

void AddSelfcheckCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command =
      app.add_subcommand("selfcheck", "proves this machine and build: kernels on every tier, the embedded model's known answers");
  command->callback([&context] { Selfcheck(context); });
}

}  // namespace tessera
