// Any bytes as a model's output and as a chat request. The first byte chooses the parser's start state, the second a chunk size: the result
// may not depend on where the text is cut. The rest, as JSON, is rendered by both formats, or refused.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "tokenizer/chat_parser.h"
#include "tokenizer/chat_render.h"
#include "tokenizer/utf8.h"

namespace {

using tessera::ChatDelta;
using tessera::ParsedChat;

struct Outcome {
  ParsedChat chat;
  tessera::FinishReason reason;
};

Outcome ParseInChunks(const std::string& text, const tessera::ChatParseOptions& options, size_t code_points) {
  tessera::ChatParser parser(options);
  std::vector<ChatDelta> deltas;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    for (size_t i = 0; i < code_points && pos < text.size(); ++i) tessera::NextCodePoint(text, &pos);
    parser.FeedText(std::string_view(text).substr(begin, pos - begin), &deltas);
  }
  const tessera::FinishReason reason = parser.Finish(false, &deltas);
  return {tessera::CollectDeltas(deltas), reason};
}

void CheckSame(const Outcome& a, const Outcome& b) {
  bool same = a.reason == b.reason && a.chat.reasoning_content == b.chat.reasoning_content && a.chat.content == b.chat.content &&
              a.chat.tool_calls.size() == b.chat.tool_calls.size();
  for (size_t i = 0; same && i < a.chat.tool_calls.size(); ++i) {
    same = a.chat.tool_calls[i].name == b.chat.tool_calls[i].name && a.chat.tool_calls[i].arguments == b.chat.tool_calls[i].arguments;
  }
  if (!same) std::abort();
}

void FuzzParser(uint8_t mode, uint8_t chunk, const std::string& text) {
  tessera::ChatParseOptions options;
  options.stage = static_cast<tessera::ParseStage>(mode % 5);
  options.parse_tool_calls = (mode & 0x10) == 0;
  if ((mode & 0x20) != 0) options.stop_sequences = {"STOP", "a<", "\n\n"};
  const Outcome whole = ParseInChunks(text, options, text.size() + 1);
  CheckSame(whole, ParseInChunks(text, options, 1));
  CheckSame(whole, ParseInChunks(text, options, size_t{2} + chunk % 30));
}

void FuzzRenderer(std::string_view json) {
  try {
    const tessera::ChatRequest request = tessera::ParseChatRequest(tessera::ParseJson(json, "fuzz"));
    for (const auto format : {tessera::ChatFormat::kV4, tessera::ChatFormat::kV41}) {
      const tessera::RenderedChat chat = tessera::RenderChat(request, format);
      for (size_t i = 0; i < chat.pieces.size(); ++i) {
        if (chat.pieces[i].text.empty()) std::abort();
        if (i > 0 && !chat.pieces[i].is_special && !chat.pieces[i - 1].is_special) std::abort();
      }
    }
  } catch (const tessera::Error&) {
    // RequestError or not JSON.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (tessera::ValidUtf8Prefix(text) == text.size()) FuzzParser(data[0], data[1], text);
  FuzzRenderer(text);
  return 0;
}
