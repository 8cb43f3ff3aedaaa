#include "tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "core/check.h"

namespace tessera {
namespace {

constexpr size_t kPatternsMax = 16;
constexpr size_t kPatternBytesMax = 16 << 10;  // DeepSeek's longest is 120 bytes
// Backtracking steps one match may take. DeepSeek's patterns need one per byte at most (a run of spaces without a line break is tried
// twice); a catastrophic pattern, whose steps grow faster than its text, ends here with an error.
constexpr size_t kMatchStepsBase = 100'000;
constexpr size_t kMatchStepsPerByte = 4;
constexpr uint32_t kHeapLimitKib = 64 << 10;

// The pattern that byte-level BPE applies itself when its own field use_regex is set (GPT-2's).
constexpr const char* kByteLevelRegex = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string Pcre2Message(int code) {
  PCRE2_UCHAR buffer[160] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

PCRE2_SPTR Subject(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

// The tokenizer file's regexes follow Unicode's White_Space property for \s; PCRE2's own \s also takes U+180E, which lost that property in
// Unicode 6.3. The escapes are rewritten to the property, inside and outside of character classes.
std::string WithUnicodeWhiteSpace(const std::string& regex) {
  std::string out;
  for (size_t i = 0; i < regex.size(); ++i) {
    if (regex[i] != '\\' || i + 1 == regex.size()) {
      out += regex[i];
      continue;
    }
    const char escaped = regex[++i];
    if (escaped == 's') {
      out += "\\p{White_Space}";
    } else if (escaped == 'S') {
      out += "\\P{White_Space}";
    } else {
      out += '\\';
      out += escaped;
    }
  }
  return out;
}

}  // namespace

// One compiled regex; immutable, so that any number of threads match with it at once.
class PreTokenizer::Pattern {
 public:
  Pattern(const std::string& regex, const std::string& what) : regex_(regex) {
    if (regex.size() > kPatternBytesMax) {
      Fail("{}: pre_tokenizer: a pattern of {} bytes, at most {} are allowed", what, regex.size(), kPatternBytesMax);
    }
    const std::string rewritten = WithUnicodeWhiteSpace(regex);
    int error = 0;
    size_t offset = 0;
    constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    code_ = pcre2_compile(Subject(rewritten), rewritten.size(), kOptions, &error, &offset, nullptr);
    if (code_ == nullptr) Fail("{}: pre_tokenizer: pattern '{}': {}", what, OneLine(regex), Pcre2Message(error));
    uint32_t matches_empty = 0;
    pcre2_pattern_info(code_, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) {
      pcre2_code_free(code_);
      Fail("{}: pre_tokenizer: pattern '{}' matches the empty string", what, OneLine(regex));
    }
    has_jit_ = pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE) == 0;  // without it the interpreter gives the same matches, slower
  }
  ~Pattern() { pcre2_code_free(code_); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // The first match in `text` at or after `from`: true and [*begin, *end) in bytes.
  bool Find(std::string_view text, size_t from, Walk& walk, size_t* begin, size_t* end) const;

 private:
  std::string regex_;
  pcre2_code* code_ = nullptr;
  bool has_jit_ = false;
};

struct PreTokenizer::Walk {
  EmitFunction emit = nullptr;
  void* context = nullptr;
  std::unique_ptr<pcre2_match_data, MatchDataDeleter> match_data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> match_context{pcre2_match_context_create(nullptr)};

  explicit Walk(size_t text_bytes) {
    if (match_data == nullptr || match_context == nullptr) Fail("no memory to match the pre-tokenizer's patterns");
    const size_t steps = std::min<size_t>(kMatchStepsBase + kMatchStepsPerByte * text_bytes, UINT32_MAX);
    pcre2_set_match_limit(match_context.get(), static_cast<uint32_t>(steps));
    pcre2_set_heap_limit(match_context.get(), kHeapLimitKib);
  }
};

bool PreTokenizer::Pattern::Find(std::string_view text, size_t from, Walk& walk, size_t* begin, size_t* end) const {
  pcre2_match_data* data = walk.match_data.get();
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (has_jit_) result = pcre2_jit_match(code_, Subject(text), text.size(), from, PCRE2_NO_UTF_CHECK, data, walk.match_context.get());
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter's stack is the heap
    result = pcre2_match(code_, Subject(text), text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, walk.match_context.get());
  }
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) Fail("pre-tokenizer pattern '{}' failed on a piece of {} bytes: {}", OneLine(regex_), text.size(), Pcre2Message(result));
  const size_t* bounds = pcre2_get_ovector_pointer(data);
  *begin = bounds[0];
  *end = bounds[1];
  if (*begin < from || *end <= *begin) Fail("pre-tokenizer pattern '{}' has a match that does not advance", OneLine(regex_));
  return true;
}

PreTokenizer PreTokenizer::FromJson(const Json& json, const std::string& what) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.AddFromJson(json, what, false);
  return pre_tokenizer;
}

void PreTokenizer::AddSplit(const std::string& regex, const std::string& what) {
  if (patterns_.size() == kPatternsMax) Fail("{}: pre_tokenizer: more than {} splits", what, kPatternsMax);
  patterns_.push_back(std::make_shared<const Pattern>(regex, what));
}

void PreTokenizer::AddFromJson(const Json& json, const std::string& what, bool inside_sequence) {
  if (json.is_null()) return;
  const auto type_field = json.is_object() ? json.find("type") : json.end();
  if (!json.is_object() || type_field == json.end() || !type_field->is_string()) Fail("{}: pre_tokenizer: not an object with a type", what);
  const std::string type = type_field->get<std::string>();
  const auto flag = [&json](const char* name, bool fallback) {
    const auto field = json.find(name);
    return field != json.end() && field->is_boolean() ? field->get<bool>() : fallback;
  };
  if (type == "Sequence" && !inside_sequence) {
    const auto parts = json.find("pretokenizers");
    if (parts == json.end() || !parts->is_array()) Fail("{}: pre_tokenizer: a Sequence without the array pretokenizers", what);
    for (const Json& part : *parts) AddFromJson(part, what, true);
  } else if (type == "Split") {
    const auto behavior = json.find("behavior");
    if (behavior == json.end() || *behavior != "Isolated" || flag("invert", false)) {
      Fail("{}: pre_tokenizer: only Split with behavior Isolated and without invert is supported", what);
    }
    const auto pattern = json.find("pattern");
    const bool is_regex = pattern != json.end() && pattern->is_object() && pattern->contains("Regex") && pattern->at("Regex").is_string();
    if (!is_regex) Fail("{}: pre_tokenizer: a Split without pattern.Regex", what);
    AddSplit(pattern->at("Regex").get<std::string>(), what);
  } else if (type == "ByteLevel") {
    if (flag("add_prefix_space", true)) Fail("{}: pre_tokenizer: ByteLevel with add_prefix_space is not supported", what);
    if (flag("use_regex", true)) AddSplit(kByteLevelRegex, what);
  } else {
    Fail("{}: pre_tokenizer: type '{}' is not supported here", what, OneLine(type));
  }
}

void PreTokenizer::Split(std::string_view text, EmitFunction emit, void* context) const {
  if (text.empty()) return;
  Walk walk(text.size());
  walk.emit = emit;
  walk.context = context;
  SplitFrom(0, text, walk);
}

void PreTokenizer::SplitFrom(size_t pattern_idx, std::string_view text, Walk& walk) const {
  if (pattern_idx == patterns_.size()) {
    walk.emit(walk.context, text);
    return;
  }
  const Pattern& pattern = *patterns_[pattern_idx];
  size_t done = 0;
  size_t begin = 0;
  size_t end = 0;
  while (done < text.size() && pattern.Find(text, done, walk, &begin, &end)) {
    if (begin > done) SplitFrom(pattern_idx + 1, text.substr(done, begin - done), walk);
    SplitFrom(pattern_idx + 1, text.substr(begin, end - begin), walk);
    done = end;
  }
  if (done < text.size()) SplitFrom(pattern_idx + 1, text.substr(done), walk);
}

}  // namespace tessera
