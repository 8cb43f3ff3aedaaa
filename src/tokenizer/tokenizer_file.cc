#include "tokenizer/tokenizer_file.h"

#include <algorithm>

#include "core/check.h"

namespace tessera {
namespace {

constexpr size_t kBytesMax = size_t{64} << 20;  // the real file has 6.4 MB
constexpr size_t kDepthMax = 32;
constexpr size_t kMembersMax = 512;  // of any object but the vocabulary: Json finds a key by linear search

// Receives the parser's events. `vocab` and `merges` of the object `model` are captured; the rest builds `root`.
class FileReader : public nlohmann::json_sax<Json> {
 public:
  FileReader(const std::string& what, TokenizerFile* file) : what_(what), file_(file) {}
  Json TakeRoot() { return std::move(root_); }

  bool null() override { return Value(nullptr); }
  bool boolean(bool value) override { return Value(value); }
  bool number_integer(number_integer_t value) override { return Integer(value, static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return Integer(static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)), static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Value(value); }
  bool binary(binary_t&) override { return true; }  // JSON text has none

  bool string(string_t& value) override {
    if (mode_ != Mode::kMerges) return Value(value);
    if (in_pair_) {
      pair_.push_back(std::move(value));
    } else {
      const size_t space = value.find(' ');
      if (space == std::string::npos || value.find(' ', space + 1) != std::string::npos) {
        Fail("{}: model.merges[{}]: '{}' is not two tokens with a space between", what_, file_->merges.size(), OneLine(value));
      }
      file_->merges.emplace_back(value.substr(0, space), value.substr(space + 1));
    }
    return true;
  }

  bool start_object(size_t) override {
    if (mode_ != Mode::kRest) Mistyped();
    if (AtModelField("vocab")) {
      Put(true);  // the key is taken
      mode_ = Mode::kVocab;
      return true;
    }
    return Open(Json::object());
  }
  bool end_object() override {
    if (mode_ == Mode::kVocab) {
      mode_ = Mode::kRest;
      return true;
    }
    return Close();
  }
  bool start_array(size_t) override {
    if (mode_ == Mode::kVocab || in_pair_) Mistyped();
    if (mode_ == Mode::kMerges) {
      in_pair_ = true;
      pair_.clear();
      return true;
    }
    if (AtModelField("merges")) {
      Put(true);
      mode_ = Mode::kMerges;
      return true;
    }
    return Open(Json::array());
  }
  bool end_array() override {
    if (in_pair_) {
      in_pair_ = false;
      if (pair_.size() != 2) Fail("{}: model.merges[{}]: {} tokens, not two", what_, file_->merges.size(), pair_.size());
      file_->merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      return true;
    }
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kRest;
      return true;
    }
    return Close();
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    if (mode_ == Mode::kVocab) return true;
    if (open_.back()->contains(key_)) Fail("{}: the key '{}' stands twice in one object", what_, OneLine(key_));
    if (open_.back()->size() == kMembersMax) Fail("{}: more than {} keys in one object", what_, kMembersMax);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    Fail("{}: not valid JSON at byte {}", what_, position);
  }

 private:
  enum class Mode { kRest, kVocab, kMerges };

  [[noreturn]] void Mistyped() {
    if (mode_ == Mode::kVocab) Fail("{}: model.vocab: the value of '{}' is not an integer", what_, OneLine(key_));
    Fail("{}: model.merges[{}]: not a string or a pair of strings", what_, file_->merges.size());
  }
  bool AtModelField(const char* name) const { return open_.size() == 2 && model_is_open_ && key_ == name; }

  Json* Put(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }
  bool Open(Json container) {
    if (open_.size() == kDepthMax) Fail("{}: JSON nested deeper than {} levels", what_, kDepthMax);
    if (open_.size() == 1) model_is_open_ = container.is_object() && key_ == "model";
    // A later sibling may move its elders, but only while none of them is open.
    open_.push_back(Put(std::move(container)));
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  bool Value(Json value) {
    if (mode_ != Mode::kRest) Mistyped();
    Put(std::move(value));
    return true;
  }
  bool Integer(int64_t value, double as_double) {
    if (mode_ != Mode::kVocab) return Value(open_.empty() ? Json(as_double) : Json(value));
    if (value < 0 || value > INT32_MAX) Fail("{}: model.vocab: '{}' has the id {}", what_, OneLine(key_), as_double);
    file_->vocab.emplace_back(std::move(key_), static_cast<int32_t>(value));
    return true;
  }

  const std::string& what_;
  TokenizerFile* file_;
  Json root_;
  std::vector<Json*> open_;
  std::string key_;
  std::vector<std::string> pair_;
  Mode mode_ = Mode::kRest;
  bool model_is_open_ = false;
  bool in_pair_ = false;
};

const Json* Field(const Json& object, const char* name) {
  const auto field = object.find(name);
  return field == object.end() || field->is_null() ? nullptr : &*field;
}

bool FlagOf(const Json& object, const char* name, const std::string& what) {
  const Json* field = Field(object, name);
  if (field == nullptr) return false;
  if (!field->is_boolean()) Fail("{}: {}: not true or false", what, name);
  return field->get<bool>();
}

// Everything that would change the ids and that this tokenizer does not do is refused by name.
void CheckFeatures(const Json& root, const std::string& what) {
  const Json& model = root.at("model");
  const Json* type = Field(model, "type");
  if (type == nullptr || *type != "BPE") Fail("{}: model.type: only BPE is supported", what);
  for (const char* name : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json* field = Field(model, name);
    if (field != nullptr && *field != "" && *field != 0) Fail("{}: model.{}: not supported", what, name);
  }
  for (const char* name : {"byte_fallback", "ignore_merges"}) {
    if (FlagOf(model, name, what)) Fail("{}: model.{}: not supported", what, name);
  }
  if (const Json* normalizer = Field(root, "normalizer")) {
    const Json* parts = normalizer->is_object() ? Field(*normalizer, "normalizers") : nullptr;
    if (parts == nullptr || !parts->is_array() || !parts->empty()) Fail("{}: normalizer: not supported", what);
  }
  const Json* decoder = Field(root, "decoder");
  const Json* decoder_type = decoder != nullptr && decoder->is_object() ? Field(*decoder, "type") : nullptr;
  if (decoder_type == nullptr || *decoder_type != "ByteLevel") Fail("{}: decoder: only ByteLevel is supported", what);
}

TokenizerFile::AddedToken ParseAddedToken(const Json& json, const std::string& what) {
  const Json* id = json.is_object() ? Field(json, "id") : nullptr;
  const Json* content = json.is_object() ? Field(json, "content") : nullptr;
  if (id == nullptr || !id->is_number_integer()) Fail("{}: no integer id", what);
  if (content == nullptr || !content->is_string()) Fail("{}: no string content", what);
  TokenizerFile::AddedToken token;
  const auto value = id->get<int64_t>();
  if (value < 0 || value > INT32_MAX) Fail("{}: the id {}", what, value);
  token.id = static_cast<int32_t>(value);
  token.content = content->get<std::string>();
  if (token.content.empty()) Fail("{}: the content is empty", what);
  token.special = FlagOf(json, "special", what);
  token.normalized = FlagOf(json, "normalized", what);
  for (const char* name : {"single_word", "lstrip", "rstrip"}) {
    if (FlagOf(json, name, what)) Fail("{}: {}: not supported", what, name);
  }
  return token;
}

void CheckIds(TokenizerFile* file, const std::string& what) {
  const size_t num_tokens = file->vocab.size() + file->added_tokens.size();
  const auto check = [&](int32_t id, const std::string& token) {
    const bool is_sparse = static_cast<size_t>(id) >= 2 * num_tokens;
    if (is_sparse) Fail("{}: '{}' has the id {}, but there are only {} tokens", what, OneLine(token), id, num_tokens);
    file->num_ids = std::max(file->num_ids, id + 1);
  };
  for (const auto& [token, id] : file->vocab) check(id, token);
  for (const auto& token : file->added_tokens) check(token.id, token.content);
}

}  // namespace

TokenizerFile ParseTokenizerFile(std::string_view json, const std::string& what) {
  if (json.size() > kBytesMax) Fail("{}: {} bytes, at most {} are allowed", what, json.size(), kBytesMax);
  TokenizerFile file;
  FileReader reader(what, &file);
  Json::sax_parse(json, &reader);
  Json root = reader.TakeRoot();
  if (!root.is_object() || Field(root, "model") == nullptr || !root.at("model").is_object()) Fail("{}: no object model", what);
  if (file.vocab.empty()) Fail("{}: model.vocab: missing or empty", what);
  if (root.at("model").value("merges", Json()) != true) Fail("{}: model.merges: missing", what);
  CheckFeatures(root, what);
  if (const Json* added = Field(root, "added_tokens")) {
    if (!added->is_array()) Fail("{}: added_tokens: not an array", what);
    for (size_t i = 0; i < added->size(); ++i) {
      file.added_tokens.push_back(ParseAddedToken(added->at(i), fmt::format("{}: added_tokens[{}]", what, i)));
    }
  }
  CheckIds(&file, what);
  if (const Json* pre_tokenizer = Field(root, "pre_tokenizer")) file.pre_tokenizer = *pre_tokenizer;
  return file;
}

}  // namespace tessera
