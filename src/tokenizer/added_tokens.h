// Finds added tokens ("<think>", "<｜User｜>", ...) in text: the leftmost first, of those that start together the longest, without overlap.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = -1;  // -1: no match
  };

  // Contents are distinct and not empty.
  void Add(std::string content, int32_t id);
  void Sort();  // after the last Add and before the first Find

  Match Find(std::string_view text, size_t from) const;

 private:
  std::vector<std::pair<std::string, int32_t>> tokens_;  // sorted by content
  bool starts_[256] = {};                                // bytes that some token starts with
};

}  // namespace tessera
