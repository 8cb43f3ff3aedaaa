// Cuts text into the pieces inside which byte-level BPE merges. The rules are the tokenizer file's own: a sequence of regular-expression
// splits (PCRE2 with JIT), each applied to every piece of the one before, so that a look-ahead never sees beyond an earlier cut.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace tessera {

class PreTokenizer {
 public:
  // `json` is the field "pre_tokenizer" of tokenizer.json: null, Split, ByteLevel, or a Sequence of these. Throws Error "<what>: ..." for
  // what it does not support (it never guesses) and for a pattern that PCRE2 refuses or that matches the empty string.
  static PreTokenizer FromJson(const Json& json, const std::string& what);

  // Calls emit(piece) for the pieces of `text` (valid UTF-8) in order; together they are the text. Throws Error when a pattern exceeds its
  // match limit.
  template <class Emit>
  void ForEachPiece(std::string_view text, Emit&& emit) const {
    Split(text, [](void* context, std::string_view piece) { (*static_cast<std::remove_reference_t<Emit>*>(context))(piece); },
          const_cast<void*>(static_cast<const void*>(&emit)));
  }

 private:
  using EmitFunction = void (*)(void* context, std::string_view piece);
  class Pattern;
  struct Walk;

  void AddSplit(const std::string& regex, const std::string& what);
  void AddFromJson(const Json& json, const std::string& what, bool inside_sequence);
  void Split(std::string_view text, EmitFunction emit, void* context) const;
  void SplitFrom(size_t pattern_idx, std::string_view text, Walk& walk) const;

  std::vector<std::shared_ptr<const Pattern>> patterns_;
};

}  // namespace tessera
