// Any bytes as tokenizer.json: an Error or a tokenizer that works. What follows a first NUL byte is text to encode with it; if that is
// valid UTF-8, decoding must give it back, since every byte has a token.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/check.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/token_map.h"
#include "tokenizer/tokenizer.h"

namespace {

constexpr std::string_view kDefaultText = "Hello,  w\u00f6rld 12345 <a>\n\n \u4e2d\u6587";

void Use(const tessera::Tokenizer& tokenizer, std::string_view text) {
  if (tessera::CompressedTokenMap(tokenizer).size() != static_cast<size_t>(tokenizer.vocab_size())) std::abort();
  for (const bool parse_special : {false, true}) {
    const std::vector<int32_t> ids = tokenizer.Encode(text, {.parse_special = parse_special});
    tessera::StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (const int32_t id : ids) streamed += decoder.Push(id);
    streamed += decoder.Finish();
    if (streamed != tokenizer.Decode(ids)) std::abort();
    if (!parse_special && streamed != text) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  try {
    const tessera::Tokenizer tokenizer = tessera::Tokenizer::Parse(input.substr(0, end), "fuzz");
    Use(tokenizer, end == std::string_view::npos ? kDefaultText : input.substr(end + 1));
  } catch (const tessera::Error&) {
    // What is refused is refused in one way only.
  }
  return 0;
}
