// `tessera synth`: writes a random checkpoint of a released shape, or of one changed in size, for measuring and testing.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/generation.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "core/memory_report.h"
#include "core/threads.h"
#include "model/synth_shape.h"
#include "model/synthesize.h"
#include "tokenizer/synthetic_tokenizer.h"
#include "tokenizer/token_map.h"

namespace tessera {
namespace {

struct SynthFlags {
  std::string out_dir;
  SynthShape shape;
  uint64_t seed = 0;
  int threads = 0;
  bool dry = false;
};

// Sizes that no model can have are what the user typed: a usage error.
template <class Call>
auto Understand(Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    throw UsageProblem(error.what());
  }
}

SynthPlan MakePlan(const SynthFlags& flags) {
  const std::string tokenizer = Understand([&] {
    const int64_t vocab_size = SynthVocabSize(flags.shape);
    if (vocab_size < SyntheticVocabMin() || vocab_size > kSyntheticVocabMax)
      Fail("--vocab {}: the generated tokenizer takes {} to {}", vocab_size, SyntheticVocabMin(), kSyntheticVocabMax);
    return SyntheticTokenizerJson(vocab_size);
  });
  int64_t compressed_vocab_size = 0;
  if (SynthHasEngram(flags.shape))
    compressed_vocab_size = NumCompressedIds(CompressedTokenMap(Tokenizer::Parse(tokenizer, "the generated tokenizer.json")));
  const Json config = Understand([&] { return SynthConfigJson(flags.shape, compressed_vocab_size); });
  return PlanSynth(config, {{"tokenizer.json", tokenizer}, {"tokenizer_config.json", SyntheticTokenizerConfigJson()}});
}

void PrintText(const SynthFlags& flags, const SynthPlan& plan) {
  Print(fmt::format("{}: random weights like {}, seed {}\n\ntensors\n", flags.out_dir, flags.shape.like, flags.seed));
  for (const GroupTotals& group : plan.groups)
    Print(fmt::format("  {:<18} {:>8}  {:>12}\n", WeightGroupName(group.group), group.num_tensors, FormatBytes(group.bytes)));
  Print(fmt::format("  {:<18} {:>8}  {:>12}  ({} bytes, {} parameters)\n\nfiles\n", "total", plan.num_tensors,
                    FormatBytes(plan.tensor_bytes), plan.tensor_bytes, plan.num_parameters));
  for (const SynthFile& file : plan.files)
    Print(fmt::format("  {:<34} {:>12}  {} tensors\n", file.name, FormatBytes(file.bytes), file.tensors.size()));
  for (const auto& [name, content] : plan.texts)
    Print(fmt::format("  {:<34} {:>12}\n", name, FormatBytes(static_cast<int64_t>(content.size()))));
  Print(fmt::format("  {:<34} {:>12}  ({} bytes)\n", "total", FormatBytes(plan.file_bytes()), plan.file_bytes()));
}

Json ToJson(const SynthFlags& flags, const SynthPlan& plan) {
  Json json = {{"out", flags.out_dir},
               {"like", flags.shape.like},
               {"seed", flags.seed},
               {"dry", flags.dry},
               {"tensors", plan.num_tensors},
               {"bytes", plan.tensor_bytes},
               {"parameters", plan.num_parameters},
               {"file_bytes", plan.file_bytes()}};
  json["groups"] = Json::array();
  for (const GroupTotals& group : plan.groups)
    json["groups"].push_back({{"name", WeightGroupName(group.group)}, {"tensors", group.num_tensors}, {"bytes", group.bytes}});
  json["files"] = Json::array();
  for (const SynthFile& file : plan.files) json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  for (const auto& [name, content] : plan.texts) json["files"].push_back({{"name", name}, {"bytes", content.size()}});
  return json;
}

// A line on a terminal that is written over, and blanked in the end.
class ProgressLine {
 public:
  explicit ProgressLine(int64_t bytes_total) : bytes_total_(bytes_total), shown_(isatty(STDERR_FILENO) != 0) {}
  ~ProgressLine() {
    if (shown_ && drawn_) std::fputs("\r\033[K", stderr);
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Draw(int64_t bytes_done, double seconds) {
    if (!shown_ || seconds < last_seconds_ + 0.2) return;
    last_seconds_ = seconds;
    drawn_ = true;
    const double done = static_cast<double>(bytes_done);
    std::fprintf(stderr, "\r\033[K%3.0f %%  %s of %s  %.2f GB/s", 100 * done / static_cast<double>(bytes_total_),
                 FormatBytes(bytes_done).c_str(), FormatBytes(bytes_total_).c_str(), done / seconds / 1e9);
  }

 private:
  int64_t bytes_total_;
  bool shown_, drawn_ = false;
  double last_seconds_ = 0;
};

void Run(SynthFlags& flags, CommandContext& context) {
  const SynthPlan plan = MakePlan(flags);
  if (flags.dry) {
    if (context.json) return Print(ToJson(flags, plan).dump(2) + "\n");
    return PrintText(flags, plan);
  }
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  bool is_complete = false;
  {
    const InterruptGuard interrupt(InterruptGuard::Mode::kOnce);
    ProgressLine progress(plan.file_bytes());
    SynthWriting writing;
    writing.seed = flags.seed;
    writing.num_workers = flags.threads > 0 ? flags.threads : NumUsableCores();
    writing.on_progress = [&](int64_t bytes_done) { progress.Draw(bytes_done, seconds()); };
    writing.is_cancelled = [] { return InterruptGuard::signal() != 0; };
    is_complete = WriteSynth(plan, flags.out_dir, writing);
  }
  if (!is_complete) {
    context.exit_code = 128 + InterruptGuard::signal();
    return;
  }
  const double elapsed = seconds();
  const double rate = static_cast<double>(plan.file_bytes()) / elapsed / 1e9;
  if (!context.json)
    return Print(fmt::format("{}: {} tensors, {} parameters, {} in {:.1f} s ({:.2f} GB/s)\n", flags.out_dir, plan.num_tensors,
                             plan.num_parameters, FormatBytes(plan.file_bytes()), elapsed, rate));
  Json json = ToJson(flags, plan);
  json["seconds"] = elapsed;
  json["gb_per_s"] = rate;
  Print(json.dump(2) + "\n");
}

}  // namespace

void AddSynthCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("synth", "writes a random checkpoint in the official layout, for measuring and testing");
  const auto flags = std::make_shared<SynthFlags>();
  const std::vector<std::string_view> names = SynthShapeNames();
  command->add_option("OUT", flags->out_dir, "directory to write, new or empty")->required()->check(RefuseEmptyName);
  command->add_option("--like", flags->shape.like, "the model whose shape it has")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())));
  const auto add_size = [&](const char* name, std::optional<int64_t>& size, const char* help) {
    command->add_option(name, size, help)->type_name("N")->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  };
  add_size("--layers", flags->shape.layers, "layers; V4: the first N, V4.1: an even number from 8 up");
  add_size("--experts", flags->shape.experts, "routed experts of a layer");
  add_size("--hidden", flags->shape.hidden, "width of the residual stream, a multiple of 128");
  add_size("--vocab", flags->shape.vocab, "vocabulary");
  add_size("--engram-rows", flags->shape.engram_rows, "V4.1: rows of each Engram table, about: a prime per column is made of them");
  command->add_option("--seed", flags->seed, "the same seed and shape give the same bytes")->check(IsUnsignedNumber)->capture_default_str();
  command->add_option("--threads", flags->threads, "workers; 0: one per usable core")->check(CLI::Range(0, 4096))->capture_default_str();
  command->add_flag("--dry", flags->dry, "print what would be written: tensors, bytes, parameters, files");
  command->callback([flags, &context] { Run(*flags, context); });
}

}  // namespace tessera
