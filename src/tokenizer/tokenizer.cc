#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "core/check.h"
#include "core/file.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/utf8.h"

namespace tessera {
namespace {

constexpr size_t kFileBytesMax = size_t{64} << 20;
constexpr const char* kDefaultBos = "<｜begin▁of▁sentence｜>";
constexpr const char* kDefaultEos = "<｜end▁of▁sentence｜>";

uint64_t HashPiece(std::string_view piece) {
  uint64_t hash = piece.size() * 0x9e3779b97f4a7c15u;
  const char* data = piece.data();
  size_t left = piece.size();
  for (; left >= 8; data += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    hash = (hash ^ word) * 0xd6e8feb86659fd93u;
    hash ^= hash >> 32;
  }
  uint64_t word = 0;
  std::memcpy(&word, data, left);
  hash = (hash ^ word) * 0xd6e8feb86659fd93u;
  return hash ^ hash >> 29;
}

}  // namespace

// One call of Encode. Text repeats its words, so a table remembers where a piece was encoded last in this very call: the entry points into
// the text and into the ids so far, nothing is copied, nothing is shared between threads.
struct Tokenizer::Encoding {
  struct Entry {
    const char* piece = nullptr;
    uint32_t piece_bytes = 0;
    uint32_t num_ids = 0;
    size_t first_id = 0;  // index into ids
  };
  static constexpr size_t kPieceBytesMax = 64;  // longer pieces hardly repeat
  static constexpr size_t kEntriesMax = 16384;  // 384 KiB: most of a second-level cache and no more

  explicit Encoding(size_t text_bytes) : entries(std::bit_ceil(std::clamp<size_t>(text_bytes / 4, 16, kEntriesMax))) {
    ids.reserve(text_bytes / 3);
  }

  std::vector<int32_t> ids;
  std::vector<Entry> entries;
};

Tokenizer Tokenizer::Load(const std::string& model_dir) {
  const std::string path = model_dir + "/tokenizer.json";
  Tokenizer tokenizer = Parse(ReadFile(path, kFileBytesMax), path);
  const std::string config_path = model_dir + "/tokenizer_config.json";
  if (FileExists(config_path)) tokenizer.ReadTokenizerConfig(config_path);
  return tokenizer;
}

Tokenizer Tokenizer::Parse(std::string_view json, const std::string& what) { return Tokenizer(ParseTokenizerFile(json, what), what); }

Tokenizer::Tokenizer(TokenizerFile file, const std::string& what)
    : bytes_(static_cast<size_t>(file.num_ids)), flags_(static_cast<size_t>(file.num_ids), 0) {
  ids_.reserve(file.vocab.size() + file.added_tokens.size());
  AddVocab(file, what);
  AddAddedTokens(file, what);
  pre_tokenizer_ = PreTokenizer::FromJson(file.pre_tokenizer, what);
  bpe_ = MakeBpe(*this, file, what);
  bos_id_ = FindToken(kDefaultBos);
  eos_id_ = FindToken(kDefaultEos);
}

void Tokenizer::AddVocab(const TokenizerFile& file, const std::string& what) {
  for (const auto& [token, id] : file.vocab) {
    const auto idx = static_cast<size_t>(id);
    if ((flags_[idx] & kPresent) != 0) Fail("{}: model.vocab: '{}' and another token have the id {}", what, OneLine(token), id);
    if (!ids_.emplace(token, id).second) Fail("{}: model.vocab: '{}' stands twice", what, OneLine(token));
    std::optional<std::string> bytes = BytesFromAlphabet(token);
    flags_[idx] = static_cast<uint8_t>(kPresent | (bytes.has_value() ? kSpelledInAlphabet : 0));
    bytes_[idx] = bytes.has_value() ? *std::move(bytes) : token;
  }
}

void Tokenizer::AddAddedTokens(const TokenizerFile& file, const std::string& what) {
  for (const auto& token : file.added_tokens) {
    const auto idx = static_cast<size_t>(token.id);
    if ((flags_[idx] & kAdded) != 0) Fail("{}: added_tokens: two tokens have the id {}", what, token.id);
    const auto [entry, is_new] = ids_.emplace(token.content, token.id);
    if (entry->second != token.id) {
      Fail("{}: added_tokens: '{}' has the ids {} and {}", what, OneLine(token.content), entry->second, token.id);
    }
    if (is_new && (flags_[idx] & kPresent) != 0) {
      Fail("{}: added_tokens: '{}' has the id {} of another token", what, OneLine(token.content), token.id);
    }
    if (is_new) {
      std::optional<std::string> bytes = BytesFromAlphabet(token.content);
      if (bytes.has_value()) flags_[idx] |= kSpelledInAlphabet;
      bytes_[idx] = bytes.has_value() ? *std::move(bytes) : token.content;
    }
    flags_[idx] = static_cast<uint8_t>(flags_[idx] | kPresent | kAdded | (token.special ? kSpecial : 0));
    matchers_[token.normalized ? 1 : 0].Add(token.content, token.id);
  }
  for (AddedTokenMatcher& matcher : matchers_) matcher.Sort();
}

Bpe Tokenizer::MakeBpe(const Tokenizer& tokenizer, const TokenizerFile& file, const std::string& what) {
  std::vector<int32_t> byte_ids;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = BytesToAlphabet(std::string(1, static_cast<char>(byte)));
    const std::optional<int32_t> id = tokenizer.FindToken(spelling);
    if (!id.has_value()) Fail("{}: model.vocab: no token '{}' for the byte {:#04x}", what, OneLine(spelling), byte);
    byte_ids.push_back(*id);
  }
  std::vector<Bpe::Merge> merges;
  merges.reserve(file.merges.size());
  std::unordered_set<uint64_t> pairs;
  pairs.reserve(file.merges.size());
  for (size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto& [left, right] = file.merges[rank];
    const auto find = [&](const std::string& token) {
      const std::optional<int32_t> id = tokenizer.FindToken(token);
      if (!id.has_value()) Fail("{}: model.merges[{}]: '{}' is not in the vocabulary", what, rank, OneLine(token));
      return *id;
    };
    merges.push_back({find(left), find(right), find(left + right)});
    const uint64_t pair = uint64_t{static_cast<uint32_t>(merges.back().left)} << 32 | static_cast<uint32_t>(merges.back().right);
    if (!pairs.insert(pair).second) Fail("{}: model.merges[{}]: '{} {}' stands twice", what, rank, OneLine(left), OneLine(right));
  }
  return Bpe(byte_ids, merges);
}

void Tokenizer::ReadTokenizerConfig(const std::string& path) {
  const Json config = ReadJsonFile(path);
  const auto read = [&](const char* name, std::optional<int32_t>* id) {
    const auto field = config.is_object() ? config.find(name) : config.end();
    if (!config.is_object() || field == config.end() || field->is_null()) return;
    const Json content = field->is_object() ? field->value("content", Json()) : *field;
    if (!content.is_string()) Fail("{}: {}: not a string", path, name);
    *id = FindToken(content.get<std::string>());
    if (!id->has_value()) Fail("{}: {}: the tokenizer has no token '{}'", path, name, OneLine(content.get<std::string>()));
  };
  read("bos_token", &bos_id_);
  read("eos_token", &eos_id_);
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  const size_t valid_bytes = ValidUtf8Prefix(text);
  if (valid_bytes != text.size()) Fail("the text is not valid UTF-8 at byte {}", valid_bytes);
  Encoding encoding(text.size());
  if (options.parse_special) {
    EncodeWithMatcher(text, 0, encoding);
  } else {
    EncodePlain(text, encoding);
  }
  return std::move(encoding.ids);
}

void Tokenizer::EncodeWithMatcher(std::string_view text, size_t matcher_idx, Encoding& encoding) const {
  if (matcher_idx == std::size(matchers_)) return EncodePlain(text, encoding);
  size_t done = 0;
  while (true) {
    const AddedTokenMatcher::Match match = matchers_[matcher_idx].Find(text, done);
    if (match.id < 0) break;
    EncodeWithMatcher(text.substr(done, match.begin - done), matcher_idx + 1, encoding);
    encoding.ids.push_back(match.id);
    done = match.end;
  }
  EncodeWithMatcher(text.substr(done), matcher_idx + 1, encoding);
}

void Tokenizer::EncodePlain(std::string_view text, Encoding& encoding) const {
  std::vector<int32_t>& ids = encoding.ids;
  const uint64_t mask = encoding.entries.size() - 1;
  pre_tokenizer_.ForEachPiece(text, [&](std::string_view piece) {
    if (piece.size() > Encoding::kPieceBytesMax) return bpe_->Encode(piece, &ids);
    Encoding::Entry& entry = encoding.entries[HashPiece(piece) & mask];
    const size_t first_id = ids.size();
    if (entry.piece_bytes == piece.size() && std::memcmp(entry.piece, piece.data(), piece.size()) == 0) {
      ids.resize(first_id + entry.num_ids);
      std::copy_n(ids.data() + entry.first_id, entry.num_ids, ids.data() + first_id);
    } else {
      bpe_->Encode(piece, &ids);
      entry.piece_bytes = static_cast<uint32_t>(piece.size());
      entry.num_ids = static_cast<uint32_t>(ids.size() - first_id);
    }
    entry.piece = piece.data();  // the latest place is the one still in the processor's cache
    entry.first_id = first_id;
  });
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, DecodeOptions options) const {
  std::string text;
  Utf8Repair repair;
  for (const int32_t id : ids) {
    if (options.skip_special && IsSpecial(id)) continue;
    repair.Push(TokenBytes(id), &text);
  }
  repair.Finish(&text);
  return text;
}

const std::string& Tokenizer::TokenBytes(int32_t id) const {
  static const std::string empty;
  return HasToken(id) ? bytes_[static_cast<size_t>(id)] : empty;
}

std::string Tokenizer::TokenSpelling(int32_t id) const {
  return (FlagsOf(id) & kSpelledInAlphabet) != 0 ? BytesToAlphabet(TokenBytes(id)) : TokenBytes(id);
}

std::optional<int32_t> Tokenizer::FindToken(std::string_view content) const {
  const auto entry = ids_.find(std::string(content));
  if (entry == ids_.end()) return std::nullopt;
  return entry->second;
}

}  // namespace tessera
