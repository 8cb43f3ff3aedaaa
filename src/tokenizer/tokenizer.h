// Text to token ids and back: byte-level BPE as a model's tokenizer.json describes it. The object is immutable after loading, so any
// number of threads may use it at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_file.h"

namespace tessera {

struct EncodeOptions {
  // Added tokens spelled in the text become their ids. Off, the text is only text: what a user writes can never become a control token.
  bool parse_special = false;
};
struct DecodeOptions {
  bool skip_special = false;  // leave out the tokens that the file marks special
};

class Tokenizer {
 public:
  // Reads <model_dir>/tokenizer.json and, where present, bos and eos from tokenizer_config.json. Throws Error naming the file.
  static Tokenizer Load(const std::string& model_dir);
  // `what` names the source in errors. Throws Error.
  static Tokenizer Parse(std::string_view json, const std::string& what);

  // No token is put in front or behind. Throws Error with the offset when `text` is not UTF-8.
  std::vector<int32_t> Encode(std::string_view text, EncodeOptions options = {}) const;
  // Valid UTF-8: what the ids spell wrongly becomes U+FFFD. Ids without a token spell nothing.
  std::string Decode(std::span<const int32_t> ids, DecodeOptions options = {}) const;

  // The bytes a token stands for, perhaps part of a character; empty for an id without a token.
  const std::string& TokenBytes(int32_t id) const;
  // The token as the file writes it, in the byte alphabet; empty for an id without a token.
  std::string TokenSpelling(int32_t id) const;
  // The token that the file writes as `content`.
  std::optional<int32_t> FindToken(std::string_view content) const;

  bool HasToken(int32_t id) const { return (FlagsOf(id) & kPresent) != 0; }
  bool IsAdded(int32_t id) const { return (FlagsOf(id) & kAdded) != 0; }
  bool IsSpecial(int32_t id) const { return (FlagsOf(id) & kSpecial) != 0; }
  int64_t vocab_size() const { return static_cast<int64_t>(bytes_.size()); }  // largest id + 1
  std::optional<int32_t> bos_id() const { return bos_id_; }
  std::optional<int32_t> eos_id() const { return eos_id_; }

 private:
  enum Flag : uint8_t { kPresent = 1, kAdded = 2, kSpecial = 4, kSpelledInAlphabet = 8 };
  struct Encoding;

  explicit Tokenizer(TokenizerFile file, const std::string& what);
  void AddVocab(const TokenizerFile& file, const std::string& what);
  void AddAddedTokens(const TokenizerFile& file, const std::string& what);
  static Bpe MakeBpe(const Tokenizer& tokenizer, const TokenizerFile& file, const std::string& what);
  void ReadTokenizerConfig(const std::string& path);
  uint8_t FlagsOf(int32_t id) const { return id >= 0 && id < vocab_size() ? flags_[static_cast<size_t>(id)] : uint8_t{0}; }
  void EncodeWithMatcher(std::string_view text, size_t matcher_idx, Encoding& encoding) const;
  void EncodePlain(std::string_view text, Encoding& encoding) const;

  std::vector<std::string> bytes_;  // [vocab_size]
  std::vector<uint8_t> flags_;      // [vocab_size]
  std::unordered_map<std::string, int32_t> ids_;
  // Tokens matched in the text as it is, then, in what remains, those matched in normalised text (the same text: there is no normaliser).
  AddedTokenMatcher matchers_[2];
  PreTokenizer pre_tokenizer_;
  std::optional<Bpe> bpe_;
  std::optional<int32_t> bos_id_;
  std::optional<int32_t> eos_id_;
};

}  // namespace tessera
