#include "core/options.h"

#include <gtest/gtest.h>

#include <set>

#include "core/check.h"

namespace tessera {
namespace {

enum class Rounding { kBf16, kReference, kFp32 };

// An options struct as the engine declares its own: members with their defaults, and one function that binds them.
struct ExampleOptions {
  std::string model = "models/tiny";
  Rounding rounding = Rounding::kBf16;
  int threads = 0;
  int64_t max_context = 32768;
  uint64_t seed = 0;
  float temperature = 0.6f;
  bool ignore_eos = false;
  std::vector<std::string> stop;
};
OptionTable Fields(ExampleOptions& options) {
  return {{"model", "directory of the model", &options.model},
          {"rounding", "rounding points of activations", EnumOf(&options.rounding, {"bf16", "reference", "fp32"})},
          {"threads", "workers per rank; 0 = physical cores", &options.threads, {0, 1024}},
          {"max_context", "longest sequence in tokens", &options.max_context, {1}},
          {"seed", "seed of the sampler", &options.seed},
          {"temperature", "0 = greedy", &options.temperature, {0, 100}},
          {"ignore_eos", "go on after the end of text", &options.ignore_eos},
          {"stop", "text that ends the answer; may be repeated", &options.stop}};
}

template <class Function>
std::string ErrorOf(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string TextError(std::string_view name, std::string_view text) {
  ExampleOptions options;
  const OptionTable table = Fields(options);
  return ErrorOf([&] { ParseOption(FindOption(table, name), text); });
}

std::string JsonError(const std::string& text) {
  ExampleOptions options;
  return ErrorOf([&] { ParseOptions(Fields(options), Json::parse(text), "request"); });
}

TEST(OptionsTest, TextSetsEveryKindOfField) {
  ExampleOptions options;
  const OptionTable table = Fields(options);
  const auto set = [&table](std::string_view name, std::string_view text) { ParseOption(FindOption(table, name), text); };
  set("model", "a b");
  set("rounding", "fp32");
  set("threads", "3");
  set("max-context", "9000000000");
  set("max_context", "9000000001");
  set("seed", "18446744073709551615");
  set("temperature", "1.5e-1");
  set("ignore-eos", "true");
  set("stop", "one");
  set("stop", "two");
  EXPECT_EQ(options.model, "a b");
  EXPECT_EQ(options.rounding, Rounding::kFp32);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.max_context, 9000000001);
  EXPECT_EQ(options.seed, ~uint64_t{0});
  EXPECT_FLOAT_EQ(options.temperature, 0.15f);
  EXPECT_TRUE(options.ignore_eos);
  EXPECT_EQ(options.stop, (std::vector<std::string>{"one", "two"}));
}

TEST(OptionsTest, WrongTextNamesTheFlagAndTheValue) {
  EXPECT_EQ(TextError("threads", "x"), "--threads: 'x' is not a whole number");
  EXPECT_EQ(TextError("threads", "1.5"), "--threads: '1.5' is not a whole number");
  EXPECT_EQ(TextError("threads", ""), "--threads: '' is not a whole number");
  EXPECT_EQ(TextError("threads", "3 "), "--threads: '3 ' is not a whole number");
  EXPECT_EQ(TextError("threads", "99999999999"), "--threads: '99999999999' is out of range");
  EXPECT_EQ(TextError("threads", "-1"), "--threads: -1 is below the least, 0");
  EXPECT_EQ(TextError("threads", "1025"), "--threads: 1025 is above the most, 1024");
  EXPECT_EQ(TextError("max-context", "0"), "--max-context: 0 is below the least, 1");
  EXPECT_EQ(TextError("seed", "-1"), "--seed: '-1' is not a whole number");
  EXPECT_EQ(TextError("temperature", "nan"), "--temperature: 'nan' is not a number");
  EXPECT_EQ(TextError("ignore-eos", "maybe"), "--ignore-eos: 'maybe' is neither true nor false");
  EXPECT_EQ(TextError("rounding", "fp23"), "--rounding: 'fp23' is none of bf16, reference, fp32 (nearest: fp32)");
}

TEST(OptionsTest, AnUnknownNameIsAnErrorWithTheNearest) {
  EXPECT_EQ(TextError("thread", "1"), "unknown option --thread (nearest: --threads)");
  EXPECT_EQ(TextError("max-cnotext", "1"), "unknown option --max-cnotext (nearest: --max-context)");
  EXPECT_EQ(JsonError(R"({"temprature": 1})"), "request: unknown field 'temprature' (nearest: 'temperature')");
}

TEST(OptionsTest, JsonSetsEveryKindOfField) {
  ExampleOptions options;
  options.stop = {"old"};
  ParseOptions(Fields(options),
               Json::parse(R"({"model": "m", "rounding": "reference", "threads": 2, "max_context": 5, "seed": 18446744073709551615,
                               "temperature": 1, "ignore_eos": true, "stop": ["a", "b"]})"),
               "request");
  EXPECT_EQ(options.model, "m");
  EXPECT_EQ(options.rounding, Rounding::kReference);
  EXPECT_EQ(options.threads, 2);
  EXPECT_EQ(options.max_context, 5);
  EXPECT_EQ(options.seed, ~uint64_t{0});
  EXPECT_EQ(options.temperature, 1.0f);
  EXPECT_TRUE(options.ignore_eos);
  EXPECT_EQ(options.stop, (std::vector<std::string>{"a", "b"}));
}

TEST(OptionsTest, WrongJsonNamesTheFieldAndTheValue) {
  EXPECT_EQ(JsonError(R"({"threads": "2"})"), "request: threads: \"2\" is not a whole number");
  EXPECT_EQ(JsonError(R"({"threads": 2.5})"), "request: threads: 2.5 is not a whole number");
  EXPECT_EQ(JsonError(R"({"threads": 5000000000})"), "request: threads: '5000000000' is out of range");
  EXPECT_EQ(JsonError(R"({"threads": 2000})"), "request: threads: 2000 is above the most, 1024");
  EXPECT_EQ(JsonError(R"({"seed": -1})"), "request: seed: '-1' is not a whole number");
  EXPECT_EQ(JsonError(R"({"model": 1})"), "request: model: 1 is not a string");
  EXPECT_EQ(JsonError(R"({"ignore_eos": 1})"), "request: ignore_eos: 1 is neither true nor false");
  EXPECT_EQ(JsonError(R"({"temperature": true})"), "request: temperature: true is not a number");
  EXPECT_EQ(JsonError(R"({"temperature": -1})"), "request: temperature: -1 is below the least, 0");
  EXPECT_EQ(JsonError(R"({"stop": ["a", 1]})"), "request: stop: 1 is not a string");
  EXPECT_EQ(JsonError(R"({"stop": "a"})"), "request: stop: \"a\" is not a list of strings");
  EXPECT_EQ(JsonError(R"({"rounding": "BF16"})"), "request: rounding: 'BF16' is none of bf16, reference, fp32 (nearest: bf16)");
  EXPECT_EQ(JsonError("[]"), "request: a JSON object was expected");
}

TEST(OptionsTest, PrintedValuesParseBack) {
  ExampleOptions options;
  options.rounding = Rounding::kReference;
  options.threads = 7;
  options.temperature = 0.1f;
  options.stop = {"x"};
  ExampleOptions copy;
  const OptionTable from = Fields(options), to = Fields(copy);
  for (size_t i = 0; i < from.size(); ++i) ParseOption(to[i], FormatOption(from[i]));
  EXPECT_EQ(OptionsToJson(to), OptionsToJson(from));
  EXPECT_EQ(copy.temperature, 0.1f);

  ExampleOptions from_json;
  ParseOptions(Fields(from_json), OptionsToJson(from), "copy");
  EXPECT_EQ(OptionsToJson(Fields(from_json)), OptionsToJson(from));
}

TEST(OptionsTest, HelpHasALineForEachFieldWithItsDefault) {
  ExampleOptions options;
  const std::string help = OptionsHelp(Fields(options));
  EXPECT_NE(help.find("--rounding bf16|reference|fp32  rounding points of activations [bf16]\n"), std::string::npos) << help;
  EXPECT_NE(help.find("--max-context N "), std::string::npos) << help;
  EXPECT_NE(help.find("longest sequence in tokens [32768]\n"), std::string::npos) << help;
  EXPECT_NE(help.find("go on after the end of text\n"), std::string::npos) << help;
}

TEST(OptionsTest, NamesAreUnique) {
  ExampleOptions options;
  std::set<std::string_view> names;
  for (const OptionField& field : Fields(options)) EXPECT_TRUE(names.insert(field.name).second) << field.name;
}

TEST(NearestNameTest, FewestEditsAndTheFirstOfEquals) {
  EXPECT_EQ(NearestName("sed", {"seed", "sad"}), "seed");
  EXPECT_EQ(NearestName("max_seq", {"max_context", "max_seqs"}), "max_seqs");
  EXPECT_EQ(NearestName("MAX-SEQS", {"max_seqt", "max_seqs"}), "max_seqs");
  EXPECT_EQ(NearestName("ab", {"xb", "ba"}), "xb");  // one edit each: a replacement, a swap
  EXPECT_EQ(NearestName("abcd", {"wxyz", "acbd"}), "acbd");
  EXPECT_EQ(NearestName("", {"abc", "a"}), "a");
  EXPECT_EQ(NearestName("x", {}), "");
}

}  // namespace
}  // namespace tessera
