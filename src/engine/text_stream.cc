#include "engine/text_stream.h"

#include <algorithm>
#include <utility>

namespace tessera {

TextStream::TextStream(const Tokenizer* tokenizer, std::vector<std::string> stop) : stop_(std::move(stop)) {
  if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
  std::erase_if(stop_, [](const std::string& text) { return text.empty(); });
}

std::string TextStream::Push(int32_t token_id) { return decoder_ && !stopped_ ? Release(decoder_->Push(token_id), false) : std::string(); }

std::string TextStream::Finish() { return decoder_ && !stopped_ ? Release(decoder_->Finish(), true) : std::string(); }

std::string TextStream::Release(std::string more, bool at_end) {
  std::string text = std::exchange(held_, {}) + more;
  size_t first_match = std::string::npos;
  for (const std::string& stop : stop_) first_match = std::min(first_match, text.find(stop));
  if (first_match != std::string::npos) {
    stopped_ = true;
    text.resize(first_match);
    return text;
  }
  if (at_end) return text;
  // The longest end of the text that begins a stop string waits.
  size_t held = 0;
  for (const std::string& stop : stop_)
    for (size_t length = std::min(stop.size() - 1, text.size()); length > held; --length)
      if (text.compare(text.size() - length, length, stop, 0, length) == 0) {
        held = length;
        break;
      }
  held_ = text.substr(text.size() - held);
  text.resize(text.size() - held);
  return text;
}

}  // namespace tessera
