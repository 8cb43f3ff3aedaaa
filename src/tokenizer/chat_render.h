// Renders a chat request to the prompt of V4 or V4.1. A prompt is a list of pieces: control tokens, which the renderer alone emits, and
// text. Text is encoded without the added vocabulary, so nothing that a caller writes, "</think>" or "<｜User｜>" included, becomes a
// control token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "tokenizer/chat_format.h"
#include "tokenizer/chat_request.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

struct PromptPiece {
  std::string text;
  bool is_special = false;  // one control token
};

struct RenderedChat {
  std::vector<PromptPiece> pieces;  // no two texts are neighbours
  ChatParseOptions parse;           // how to read what the model writes after this prompt

  std::string Text() const;
};

RenderedChat RenderChat(const ChatRequest& request, ChatFormat format);

// Each control token is one id, each text is encoded as plain text. Throws Error when the tokenizer lacks bos, user, assistant or
// </think>: then it is no tokenizer of these models. Of the rarer tokens it may lack some (the embedded model's has no <｜System｜>); their
// spelling is then encoded as text.
std::vector<int32_t> PromptIds(const RenderedChat& chat, const Tokenizer& tokenizer);

}  // namespace tessera
