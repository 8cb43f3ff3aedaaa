// `tessera selfcheck`: proves this machine and build in seconds: every tier against the scalar one, and the embedded model's known answer.
#include "engine/selfcheck.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/generation.h"
#include "cli/output.h"
#include "core/json.h"

namespace tessera {
namespace {

struct KnownAnswer {
  std::vector<int32_t> prompt_ids, output_ids;
};

// What the reference (tests/golden/tiny) says greedily: "There was once a little" goes on " boy named Hugo", and the capital of France.
// Its best token leads by 0.06 at least, far above the rounding of fp32: every right build says the same.
std::vector<KnownAnswer> KnownAnswers() {
  return {{{0, 854, 315, 894, 261, 635},
           {831, 553, 1427, 522, 590, 298, 261, 1315, 1468, 16, 729, 418, 1427, 712, 516, 285, 956, 298, 262, 1522, 354, 356, 589, 1279}},
          {{0, 4054, 372, 304, 262, 478, 275, 477, 2212, 33, 4055, 4073}, {326, 478, 275, 477, 2212, 304, 536, 3878, 16, 1}}};
}

CheckResult CheckKnownAnswers(const std::string& model_dir) {
  EngineOptions options;
  options.model_dir = model_dir;
  options.numerics = Numerics::kFp32;
  const std::unique_ptr<Engine> engine = Engine::Open(options);
  size_t num_right = 0, num_tokens = 0;
  for (const KnownAnswer& answer : KnownAnswers()) {
    Request request;
    request.prompt_ids = answer.prompt_ids;
    request.sampling.temperature = 0;
    request.max_tokens = static_cast<int64_t>(answer.output_ids.size());
    const GenerationResult result = Generate(*engine, std::move(request), [](const Event&) {});
    num_tokens += answer.output_ids.size();
    for (size_t i = 0; i < std::min(answer.output_ids.size(), result.output_ids.size()); ++i)
      num_right += result.output_ids[i] == answer.output_ids[i] ? 1 : 0;
  }
  return {"known answers", num_right == num_tokens, fmt::format("{} of {} tokens are those of the reference", num_right, num_tokens)};
}

void Selfcheck(CommandContext& context) {
  std::vector<CheckResult> results = RunSelfcheck(context.model_dir);
  if (context.embedded_model) results.push_back(CheckKnownAnswers(context.model_dir));
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
