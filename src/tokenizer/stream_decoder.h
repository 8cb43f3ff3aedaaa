// Turns generated ids into text while they arrive. What a call returns is whole characters and final: the bytes of an incomplete
// character wait for the token that completes it, or become U+FFFD when none does. All calls together give what Tokenizer::Decode gives.
#pragma once

#include <cstdint>
#include <string>

#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace tessera {

class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  std::string Push(int32_t id) {
    std::string text;
    repair_.Push(tokenizer_->TokenBytes(id), &text);
    return text;
  }
  // The end of the ids; the decoder is as new afterwards.
  std::string Finish() {
    std::string text;
    repair_.Finish(&text);
    return text;
  }

 private:
  const Tokenizer* tokenizer_;
  Utf8Repair repair_;
};

}  // namespace tessera
