// `tessera`: parses the command line, runs one subcommand, turns errors into one line on stderr and an exit code: 0 success, 1 operating
// error, 2 usage error, 128 + signal when ended by one.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/embedded_model.h"
#include "cli/output.h"
#include "core/check.h"
#include "core/options.h"
#include "kernels/tier.h"

namespace tessera {
namespace {

constexpr const char* kVersion = "0.1.0";

void SetUpLog(const std::string& level) {
  auto logger = spdlog::stderr_logger_st("tessera");
  logger->set_pattern("%^%l%$ %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(logger);
}

// TESSERA_ISA lowers the instruction tier: scalar, avx2 or avx512.
void LowerTierFromEnvironment() {
  const char* name = std::getenv("TESSERA_ISA");
  if (name == nullptr) return;
  for (const Tier tier : {Tier::kScalar, Tier::kAvx2, Tier::kAvx512}) {
    if (TierName(tier) != name) continue;
    if (tier > BestTier()) Fail("TESSERA_ISA={}: this CPU runs {}", name, TierName(BestTier()));
    return SetActiveTier(tier);
  }
  Fail("TESSERA_ISA={}: scalar, avx2 or avx512", name);
}

// "--foo: unknown option; the nearest is --for" for the first argument nobody took.
std::string DescribeExtra(const std::string& extra, const CLI::App& root, const CLI::App* command) {
  std::vector<std::string> names;
  const auto add_options = [&names](const CLI::App& app) {
    for (const CLI::Option* option : app.get_options({}))
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  };
  if (!extra.starts_with("-")) {
    if (command != nullptr) return extra + ": unexpected argument";
    for (const CLI::App* sub : root.get_subcommands({})) names.push_back(sub->get_name());
    return extra + ": unknown command; the nearest is " + std::string(NearestName(extra, {names.begin(), names.end()}));
  }
  add_options(root);
  if (command != nullptr) add_options(*command);
  return extra + ": unknown option; the nearest is " +
         std::string(NearestName(extra.substr(0, extra.find('=')), {names.begin(), names.end()}));
}

int UsageError(const std::string& message, const CLI::App* command) {
  std::fprintf(stderr, "tessera: %s (see tessera%s%s --help)\n", message.c_str(), command == nullptr ? "" : " ",
               command == nullptr ? "" : command->get_name().c_str());
  return 2;
}

void AddCommands(CLI::App& app, CommandContext& context) {
  AddRunCommand(app, context);
  AddChatCommand(app, context);
  AddEvalCommand(app, context);
  AddInspectCommand(app, context);
  AddCheckCommand(app, context);
  AddTokenizeCommand(app, context);
  AddRenderCommand(app, context);
  AddSelfcheckCommand(app, context);
  AddBenchCommand(app, context);
  AddSynthCommand(app, context);
}

int Main(int argc, char** argv) {
  // A reader that went away and a limit on the size of files are errors of the write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  CommandContext context;
  std::string log_level = "warning";
  CLI::App app("Runs DeepSeek-V4 and V4.1 class Mixture-of-Experts models on CPUs, straight from their safetensors.", "tessera");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(1);
  app.fallthrough();
  app.prefix_command(false);
  app.add_option("-m,--model", context.model_dir,
                 "model directory: config.json, *.safetensors, tokenizer.json (default: the embedded model)")
      ->check(RefuseEmptyName);
  app.add_flag("--json", context.json, "print one JSON object on stdout and nothing else there");
  app.add_option("--log-level", log_level, "what goes to stderr")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  AddCommands(app, context);
  // Callbacks run while parsing: what every command needs must be ready before the first of them.
  app.parse_complete_callback([&] {
    SetUpLog(log_level);
    LowerTierFromEnvironment();
    if (context.model_dir.empty()) {
      context.model_dir = EmbeddedModelDir();
      context.embedded_model = true;
    }
  });
  const auto current = [&app]() -> const CLI::App* {
    const std::vector<CLI::App*> parsed = app.get_subcommands();
    return parsed.empty() ? nullptr : parsed.front();
  };
  try {
    app.parse(argc, argv);
    FlushOutput();
    return context.exit_code;
  } catch (const CLI::Success& success) {  // --help, --version
    const int code = app.exit(success);
    if (std::fflush(stdout) == 0) return code;
    std::fprintf(stderr, "tessera: cannot write to standard output: %s\n", std::strerror(errno));
    return 1;
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> extras = app.remaining(true);
    return UsageError(extras.empty() ? "unexpected argument" : DescribeExtra(extras.front(), app, current()), current());
  } catch (const CLI::RequiredError& error) {
    if (argc < 2) {
      std::fputs(app.help().c_str(), stderr);
      return 2;
    }
    if (current() == nullptr && !app.remaining().empty()) return UsageError(DescribeExtra(app.remaining().front(), app, nullptr), nullptr);
    return UsageError(error.what(), current());
  } catch (const CLI::ParseError& error) {
    return UsageError(error.what(), current());
  } catch (const UsageProblem& error) {
    return UsageError(error.what(), current());
  } catch (const Error& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return 1;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "tessera: out of memory\n");
    return 1;
  }
}

}  // namespace

std::string RefuseEmptyName(const std::string& text) { return text.empty() ? "the name is empty" : ""; }

}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
