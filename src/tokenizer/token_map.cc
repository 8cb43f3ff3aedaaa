#include "tokenizer/token_map.h"

#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <unordered_map>

#include "core/check.h"
#include "tokenizer/utf8.h"

namespace tessera {
namespace {

icu::UnicodeString Normalize(const icu::Normalizer2* normalizer, UErrorCode status, const icu::UnicodeString& text) {
  icu::UnicodeString out;
  if (U_SUCCESS(status)) normalizer->normalize(text, out, status);
  if (U_FAILURE(status)) Fail("ICU cannot normalise text: {}", u_errorName(status));
  return out;
}

icu::UnicodeString Nfkc(const icu::UnicodeString& text) {
  UErrorCode status = U_ZERO_ERROR;
  return Normalize(icu::Normalizer2::getNFKCInstance(status), status, text);
}

icu::UnicodeString Nfd(const icu::UnicodeString& text) {
  UErrorCode status = U_ZERO_ERROR;
  return Normalize(icu::Normalizer2::getNFDInstance(status), status, text);
}

bool IsCombiningMark(UChar32 c) { return (U_GET_GC_MASK(c) & U_GC_M_MASK) != 0; }

// Each character by itself, so that no rule that looks at neighbours (a final sigma) applies; one character may become several.
void AppendLowercase(UChar32 c, icu::UnicodeString* out) { out->append(icu::UnicodeString(c).toLower(icu::Locale::getRoot())); }

}  // namespace

std::string NormalizeForEngram(std::string_view text) {
  const icu::UnicodeString decomposed =
      Nfd(Nfkc(icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())))));
  icu::UnicodeString lower;
  for (int32_t i = 0; i < decomposed.length(); i = decomposed.moveIndex32(i, 1)) {
    const UChar32 c = decomposed.char32At(i);
    if (!IsCombiningMark(c)) AppendLowercase(c, &lower);
  }
  icu::UnicodeString collapsed;
  bool in_space = false;
  for (int32_t i = 0; i < lower.length(); ++i) {
    const UChar c = lower.charAt(i);
    const bool is_space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!is_space) collapsed.append(c);
    if (is_space && !in_space) collapsed.append(u' ');
    in_space = is_space;
  }
  // White space alone keeps one space and is a key of its own; around anything else it is dropped.
  if (collapsed == icu::UnicodeString(u' ')) return " ";
  int32_t begin = 0;
  int32_t end = collapsed.length();
  while (begin < end && u_isUWhiteSpace(collapsed.charAt(begin))) ++begin;  // all of White_Space is in the BMP
  while (end > begin && u_isUWhiteSpace(collapsed.charAt(end - 1))) --end;
  std::string out;
  icu::UnicodeString stripped = collapsed.tempSubStringBetween(begin, end);
  // The reference guards the lone space above with U+E000 and turns every U+E000 back into a space, so one in the text becomes a space too.
  stripped.findAndReplace(icu::UnicodeString(static_cast<UChar>(0xe000)), icu::UnicodeString(u' ')).toUTF8String(out);
  return out;
}

std::vector<int32_t> CompressedTokenMap(const Tokenizer& tokenizer) {
  std::vector<int32_t> map;
  map.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  std::unordered_map<std::string, int32_t> compressed_ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string text = tokenizer.Decode({&id, 1});
    std::string key;
    if (text.find(kReplacementCharacter) != std::string::npos) {
      key = tokenizer.TokenSpelling(id);  // part of a character: only its bytes identify it
    } else {
      key = NormalizeForEngram(text);
      if (key.empty()) key = text;
    }
    map.push_back(compressed_ids.try_emplace(std::move(key), static_cast<int32_t>(compressed_ids.size())).first->second);
  }
  return map;
}

int32_t NumCompressedIds(const std::vector<int32_t>& map) { return map.empty() ? 0 : *std::max_element(map.begin(), map.end()) + 1; }

}  // namespace tessera
