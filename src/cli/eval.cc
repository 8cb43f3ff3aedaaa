// `tessera eval`: teacher-forced evaluation of token ids, with dumps that any reference can be compared with.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/eval_dump.h"
#include "cli/generation.h"
#include "cli/input.h"
#include "cli/output.h"
#include "core/file.h"
#include "engine/evaluate.h"
#include "engine/sampler.h"

namespace tessera {
namespace {

constexpr size_t kInputBytesMax = size_t{1} << 30;

struct EvalFlags {
  EngineOptions engine;
  std::string ids_file;
  std::string text_file;
  std::string dump;
  bool dump_layers = false;
  int chunk = 0;
  int64_t decode_from = -1;
  CLI::Option* ids_option = nullptr;
  CLI::Option* text_option = nullptr;
};

std::vector<int32_t> IdList(const Json& json, const std::string& path) {
  std::vector<int32_t> ids;
  for (const Json& id : json) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
      Fail("{}: {} is not a token id", path, id.dump(-1, ' ', false, Json::error_handler_t::replace));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::vector<std::vector<int32_t>> ReadLists(const EvalFlags& flags, const Engine& engine) {
  if (flags.text_option->count() > 0) {
    if (engine.tokenizer() == nullptr) Fail("{}/tokenizer.json: not there, and --text-file needs it", flags.engine.model_dir);
    const std::string text = ReadFile(flags.text_file, kInputBytesMax);
    CheckUtf8(text, flags.text_file);
    std::vector<int32_t> ids = engine.tokenizer()->Encode(text);
    ids.insert(ids.begin(), static_cast<int32_t>(engine.config().bos_token_id));
    return {ids};
  }
  const Json json = ReadJsonFile(flags.ids_file, {kInputBytesMax, 8});
  if (!json.is_array() || json.empty()) Fail("{}: a list of token ids, or of such lists, was expected", flags.ids_file);
  if (!json.front().is_array()) return {IdList(json, flags.ids_file)};
  std::vector<std::vector<int32_t>> lists;
  for (const Json& list : json) {
    if (!list.is_array()) Fail("{}: lists and ids are mixed", flags.ids_file);
    lists.push_back(IdList(list, flags.ids_file));
  }
  return lists;
}

// Hours of evaluation must not end at a name that cannot be written.
void CheckWritable(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "ab");
  if (file == nullptr) Fail("{}: cannot open for writing: {}", path, std::strerror(errno));
  std::fclose(file);
}

void Eval(EvalFlags& flags, CommandContext& context) {
  if (flags.ids_option->count() + flags.text_option->count() != 1) throw UsageProblem("eval: one of --ids-file and --text-file is needed");
  if (flags.dump_layers && flags.dump.empty()) throw UsageProblem("--dump-layers goes with --dump");
  flags.engine.model_dir = context.model_dir;
  const std::unique_ptr<Engine> engine = Engine::Open(flags.engine);
  const std::vector<std::vector<int32_t>> lists = ReadLists(flags, *engine);
  if (!flags.dump.empty()) CheckWritable(flags.dump);

  // A runner of its own, so that layers are recorded only here; one list at a time.
  RunnerOptions options = engine->runner().options();
  options.record_layers = flags.dump_layers;
  StepRunner recording(engine->model(), options);
  StepRunner& runner = recording;
  EvalDump dump(engine->config());
  Json per_list = Json::array();
  Likelihood total;
  for (size_t i = 0; i < lists.size(); ++i) {
    Likelihood likelihood;
    if (!flags.dump.empty()) dump.BeginList(i, static_cast<int64_t>(lists[i].size()), flags.dump_layers);
    const auto add_rows = [&](int64_t first, View<const float> logits, const StepRecord* record) {
      for (int64_t row = 0; row < logits.rows; ++row) {
        const size_t next = static_cast<size_t>(first + row + 1);
        if (next >= lists[i].size()) continue;
        likelihood.nats -= LogProbability({logits.Row(row), static_cast<size_t>(logits.cols)}, lists[i][next]);
        ++likelihood.num_tokens;
      }
      if (!flags.dump.empty()) dump.AddRows(first, logits, record);
    };
    try {
      Evaluate(runner, lists[i], {flags.chunk, flags.decode_from}, add_rows);
    } catch (const Error& error) {
      Fail("{}{}, list {}: {}", flags.ids_file, flags.text_file, i, error.what());
    }
    total.nats += likelihood.nats;
    total.num_tokens += likelihood.num_tokens;
    const double mean = likelihood.num_tokens > 0 ? likelihood.nats / static_cast<double>(likelihood.num_tokens) : 0.0;
    per_list.push_back({{"tokens", likelihood.num_tokens}, {"nll", mean}, {"perplexity", std::exp(mean)}});
  }
  if (!flags.dump.empty()) dump.Write(flags.dump);
  const double mean = total.num_tokens > 0 ? total.nats / static_cast<double>(total.num_tokens) : 0.0;
  const Json result = {{"tokens", total.num_tokens}, {"nll", mean}, {"perplexity", std::exp(mean)}, {"lists", per_list}};
  if (context.json) return Print(result.dump() + "\n");
  Print(fmt::format("{} lists, {} tokens predicted\nmean negative log likelihood {:.6f} nats, perplexity {:.4f}\n", lists.size(),
                    total.num_tokens, mean, std::exp(mean)));
}

}  // namespace

void AddEvalCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("eval", "teacher-forced evaluation: perplexity, dumps of logits and layers");
  auto flags = std::make_shared<EvalFlags>();
  flags->ids_option =
      command->add_option("--ids-file", flags->ids_file, "JSON: a list of token ids, or a list of such lists")->check(RefuseEmptyName);
  flags->text_option =
      command->add_option("--text-file", flags->text_file, "text, evaluated behind the begin token")->check(RefuseEmptyName);
  flags->text_option->excludes(flags->ids_option);
  command->add_option("--dump", flags->dump, "write logits.i F32 [tokens, vocab] to this safetensors file")->check(RefuseEmptyName);
  command->add_flag("--dump-layers", flags->dump_layers, "and streams, experts, selections, candidates and Engram rows of every layer");
  command->add_option("--chunk", flags->chunk, "rows a prefill step takes (default: --prefill-rows)")->check(CLI::Range(1, 1 << 20));
  command->add_option("--decode-from", flags->decode_from, "tokens from this position on go one by one")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  AddOptionTable(*command, EngineOptionTable(flags->engine));
  command->callback([flags, &context] { Eval(*flags, context); });
}

}  // namespace tessera
