// `tessera tokenize`: text to ids, ids to text. Ids are printed and read separated by commas, so that one command's output is another's
// argument; decoded text is printed as it is, with a line break behind it only on a terminal.
#include <unistd.h>

#include <charconv>
#include <memory>
#include <vector>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/output.h"
#include "core/file.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

struct TokenizeFlags {
  std::string text;
  std::string file;
  std::string ids;
  bool count = false;
  bool special = false;
  CLI::Option* text_option = nullptr;
  CLI::Option* file_option = nullptr;
  CLI::Option* decode_option = nullptr;
};

std::vector<int32_t> ParseIds(const std::string& text) {
  constexpr const char* kSeparators = ", \t\n";
  std::vector<int32_t> ids;
  for (size_t begin = text.find_first_not_of(kSeparators); begin != std::string::npos; begin = text.find_first_not_of(kSeparators, begin)) {
    const size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end) {
      throw UsageProblem("--decode: '" + text.substr(begin, end - begin) + "' is not a token id");
    }
    ids.push_back(id);
    begin = end;
  }
  if (ids.empty()) throw UsageProblem("--decode: no ids");
  return ids;
}

std::string JoinIds(const std::vector<int32_t>& ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

void Decode(const Tokenizer& tokenizer, const TokenizeFlags& flags, bool json) {
  const std::vector<int32_t> ids = ParseIds(flags.ids);
  for (const int32_t id : ids) {
    if (!tokenizer.HasToken(id)) Fail("--decode: no token has the id {}; the ids are 0 to {}", id, tokenizer.vocab_size() - 1);
  }
  const std::string text = tokenizer.Decode(ids);
  if (json) return Print(Json{{"text", text}}.dump() + "\n");
  Print(text);
  if (isatty(STDOUT_FILENO) == 1) Print("\n");
}

void Encode(const Tokenizer& tokenizer, const TokenizeFlags& flags, bool json) {
  std::string text = flags.text;
  std::string what = "TEXT";
  if (flags.file_option->count() > 0) {
    text = ReadFile(flags.file, kTextBytesMax);
    what = flags.file;
  } else if (flags.text_option->count() == 0) {
    if (StandardInputIsTerminal()) throw UsageProblem("give TEXT, --file, --decode, or text on standard input");
    text = ReadStandardInput();
    what = "standard input";
  }
  CheckUtf8(text, what);
  const std::vector<int32_t> ids = tokenizer.Encode(text, {.parse_special = flags.special});
  if (json) {
    Json result = Json::object();
    if (!flags.count) result["ids"] = ids;
    result["count"] = ids.size();
    Print(result.dump() + "\n");
  } else {
    Print((flags.count ? fmt::format("{}", ids.size()) : JoinIds(ids)) + "\n");
  }
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, CommandContext& context) {
  CLI::App* command = app.add_subcommand("tokenize", "text to token ids, or ids to text");
  auto flags = std::make_shared<TokenizeFlags>();
  flags->text_option = command->add_option("TEXT", flags->text, "the text (default: standard input)");
  flags->file_option = command->add_option("--file", flags->file, "read the text from this file")->excludes(flags->text_option);
  flags->decode_option = command->add_option("--decode", flags->ids, "print the text of these ids, separated by commas")
                             ->excludes(flags->text_option)
                             ->excludes(flags->file_option);
  CLI::Option* count = command->add_flag("--count", flags->count, "print how many ids there are, not the ids");
  CLI::Option* special = command->add_flag("--special", flags->special, "special tokens spelled in the text become their ids");
  flags->decode_option->excludes(count)->excludes(special);
  command->callback([flags, &context] {
    const Tokenizer tokenizer = Tokenizer::Load(context.model_dir);
    if (flags->decode_option->count() > 0) {
      Decode(tokenizer, *flags, context.json);
    } else {
      Encode(tokenizer, *flags, context.json);
    }
  });
}

}  // namespace tessera
