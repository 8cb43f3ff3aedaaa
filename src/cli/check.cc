// `tessera check`: everything that is wrong with a checkpoint, one line each.
#include "core/check.h"

#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/output.h"
#include "core/file.h"
#include "core/json.h"
#include "model/weights.h"

namespace tessera {
namespace {

// The files first: what cannot be read cannot be compared with the config.
std::vector<std::string> FindProblems(const std::string& model_dir, bool deep) {
  std::vector<std::string> problems;
  ModelConfig config;
  bool has_config = false;
  try {
    config = ReadModelConfig(model_dir);
    has_config = true;
  } catch (const Error& error) {
    problems.push_back(error.what());
  }
  if (!problems.empty() && !FileExists(model_dir)) return problems;  // the directory itself is missing: said once
  const std::vector<CheckpointProblem> broken_files = VerifyFiles(model_dir);
  for (const CheckpointProblem& problem : broken_files) problems.push_back(problem.message);
  if (has_config && broken_files.empty()) {
    for (const CheckpointProblem& problem : VerifyCheckpoint(config, Checkpoint::Open(model_dir), deep))
      problems.push_back(problem.message);
  }
  const std::string tokenizer = model_dir + "/tokenizer.json";
  if (!FileExists(tokenizer)) problems.push_back(tokenizer + ": missing; without it the model takes token ids alone");
  return problems;
}

void Report(const std::string& model_dir, const std::vector<std::string>& problems, CommandContext& context) {
  context.exit_code = problems.empty() ? 0 : 1;
  if (context.json) {
    const Json json = {{"model", model_dir}, {"sound", problems.empty()}, {"problems", problems}};
    return Print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  for (const std::string& problem : problems) Print(problem + "\n");
  if (problems.empty()) return Print(model_dir + ": sound\n");
  // The last word goes to stderr, as that of every command that fails; a single problem is the whole story.
  FlushOutput();
  Fail("{}: {}", model_dir, problems.size() == 1 ? "1 problem" : fmt::format("{} problems", problems.size()));
}

}  // namespace

void AddCheckCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("check", "validates a checkpoint completely and lists every problem; exit code 1 if there is any");
  const auto deep = std::make_shared<bool>(false);
  command->add_option("MODEL", context.model_dir, "model directory")->check(RefuseEmptyName);
  command->add_flag("--deep", *deep, "also read every weight: NaN and infinity");
  command->callback([&context, deep] { Report(context.model_dir, FindProblems(context.model_dir, *deep), context); });
}

}  // namespace tessera
