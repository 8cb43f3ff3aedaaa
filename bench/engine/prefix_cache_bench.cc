// What the prefix cache saves on scripted conversations: prompt tokens, tokens that were not computed, and the time to the first token,
// with and without it. Texts are random ids, so any model will do: --model DIR, by default the embedded one. --smoke runs two short turns.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/random.h"
#include "engine/engine.h"

namespace {

using tessera::Engine;

struct Script {
  const char* name;
  int64_t num_prompts = 6;
  int64_t system_tokens = 1500;
  int64_t user_tokens = 80;
  int64_t answer_tokens = 48;
  bool one_chat = true;  // each prompt goes on from the answer before; false: each begins again behind the system prompt
};

struct Result {
  int64_t prompt_tokens = 0;
  int64_t hit_tokens = 0;
  double first_token_s = 0;  // summed over the prompts
  double total_s = 0;
  uint64_t hash = 0xcbf29ce484222325u;  // of all answers
  int64_t cache_bytes = 0;
  int64_t num_nodes = 0;
};

void Append(uint64_t stream, int64_t count, int64_t vocab_size, std::vector<int32_t>& ids) {
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(
        static_cast<int32_t>(tessera::UniformDouble(1, stream, static_cast<uint64_t>(i)) * static_cast<double>(vocab_size)));
}

// The answer to one prompt, appended to it.
void Ask(Engine& engine, const Script& script, std::vector<int32_t>& prompt, Result& result) {
  tessera::Request request;
  request.prompt_ids = prompt;
  request.max_tokens = script.answer_tokens;
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  engine.Submit(std::move(request));
  std::vector<tessera::Event> events;
  while (engine.Step(events)) {
  }
  for (const tessera::Event& event : events) {
    if (event.end_reason == tessera::EndReason::kError) tessera::Fail("{}", event.error);
    if (event.token_id >= 0) {
      prompt.push_back(event.token_id);
      result.hash = (result.hash ^ static_cast<uint32_t>(event.token_id)) * 0x100000001b3u;
    }
    result.prompt_tokens += event.usage.prompt_tokens;
    result.hit_tokens += event.usage.prefix_hit_tokens;
    result.first_token_s += event.usage.first_token_s;
    result.total_s += event.usage.first_token_s + event.usage.decode_s;
  }
}

Result Play(const std::string& model_dir, const Script& script, int64_t prefix_cache_mib) {
  tessera::EngineOptions options;
  options.model_dir = model_dir;
  options.max_seqs = 1;
  options.prefix_cache_mib = prefix_cache_mib;
  const std::unique_ptr<Engine> engine = Engine::Open(options);
  const int64_t vocab_size = engine->config().vocab_size;
  Result result;
  // One short answer first: what is read for the first time is nobody's saving.
  std::vector<int32_t> prompt;
  Append(1000, 16, vocab_size, prompt);
  Result warm_up;
  Ask(*engine, {.name = "warm-up", .answer_tokens = 2}, prompt, warm_up);
  prompt.clear();
  for (int64_t i = 0; i < script.num_prompts; ++i) {
    if (!script.one_chat) prompt.clear();
    if (prompt.empty()) Append(0, script.system_tokens, vocab_size, prompt);
    Append(static_cast<uint64_t>(1 + i), script.user_tokens, vocab_size, prompt);
    Ask(*engine, script, prompt, result);
  }
  result.cache_bytes = engine->prefix_cache().stats().used_bytes;
  result.num_nodes = engine->prefix_cache().stats().num_nodes;
  return result;
}

int Main(int argc, char** argv) {
  bool smoke = false;
  std::string model_dir = std::string(TESSERA_SOURCE_DIR) + "/models/tiny";
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--smoke") == 0)
      smoke = true;
    else if (std::strcmp(argv[i], "--model") == 0 && i + 1 < argc)
      model_dir = argv[++i];
    else
      tessera::Fail("{}: unknown, --model DIR and --smoke are", argv[i]);
  }
  std::vector<Script> scripts = {{.name = "chat of 6 turns"}, {.name = "6 chats, one system prompt", .one_chat = false}};
  if (smoke) scripts = {{.name = "smoke", .num_prompts = 2, .system_tokens = 60, .user_tokens = 8, .answer_tokens = 3}};
  constexpr int64_t kBudgetMib = 512;
  for (const Script& script : scripts) {
    const Result cold = Play(model_dir, script, 0), warm = Play(model_dir, script, kBudgetMib);
    if (cold.hash != warm.hash) tessera::Fail("{}: the answers differ", script.name);
    std::printf(
        "%s: %lld prompt tokens, %lld of them not computed (%.0f %%); to the first tokens %.3f s without, %.3f s with (%.0f %% saved); "
        "in all %.3f s and %.3f s; %lld snapshots, %.2f MB; hash %016llx\n",
        script.name, static_cast<long long>(warm.prompt_tokens), static_cast<long long>(warm.hit_tokens),
        100.0 * static_cast<double>(warm.hit_tokens) / static_cast<double>(warm.prompt_tokens), cold.first_token_s, warm.first_token_s,
        100 * (1 - warm.first_token_s / cold.first_token_s), cold.total_s, warm.total_s, static_cast<long long>(warm.num_nodes),
        static_cast<double>(warm.cache_bytes) / 1e6, static_cast<unsigned long long>(warm.hash));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "prefix_cache_bench: %s\n", error.what());
    return 1;
  }
}
