// The text of a running answer: whole characters as tokens arrive, and stop strings found before any part of them was shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/stream_decoder.h"

namespace tessera {

class TextStream {
 public:
  // `tokenizer` may be null (a model without one): the text stays empty.
  TextStream(const Tokenizer* tokenizer, std::vector<std::string> stop);

  // Adds a token and returns text that is final. What could be the beginning of a stop string is held back.
  std::string Push(int32_t token_id);
  // The rest, at the end of the answer.
  std::string Finish();
  // A stop string was completed: it and everything after it is not part of the text.
  bool stopped() const { return stopped_; }

 private:
  std::string Release(std::string more, bool at_end);

  std::optional<StreamDecoder> decoder_;
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tessera
