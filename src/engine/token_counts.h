// Which tokens a sequence holds and how often it generated each: what the sampler's penalties look at. One sorted list of the distinct
// tokens, so that its size follows the sequence and not the vocabulary; room for every token to come is reserved at the start, and counting
// never allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

class TokenCounts {
 public:
  struct Entry {
    int32_t token_id = 0;
    int32_t num_generated = 0;  // 0: the prompt alone has it
  };

  // Holds nothing and cannot count: for sequences without penalties.
  TokenCounts() = default;
  // Holds the prompt, with room for `num_new_max` generated tokens of a vocabulary of `vocab_size`.
  TokenCounts(std::span<const int32_t> prompt, int64_t num_new_max, int64_t vocab_size);

  // Counts a generated token; aborts when there is no room for it.
  void Add(int32_t token_id) noexcept;
  // Ascending by id.
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

}  // namespace tessera
