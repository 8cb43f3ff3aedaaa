// The merges of byte-level BPE: a piece starts as its bytes, and the adjacent pair with the best (lowest) rank is merged, leftmost first
// among equals, until no pair has a rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class Bpe {
 public:
  struct Merge {
    int32_t left = 0;
    int32_t right = 0;
    int32_t result = 0;
  };

  // byte_ids: the token of each single byte [256]; merges: best first, their pairs distinct.
  Bpe(std::span<const int32_t> byte_ids, std::span<const Merge> merges);

  // Appends the ids of `piece`. O(n^2) for short pieces, O(n log n) for long ones, the same ids from both.
  void Encode(std::string_view piece, std::vector<int32_t>* ids) const;

 private:
  // What a pair merges to; rank kNoMerge when it does not.
  struct Rule {
    uint32_t rank;
    int32_t result;
  };
  struct Slot {
    uint64_t pair;
    Rule rule;
  };
  static constexpr uint32_t kNoMerge = UINT32_MAX;
  static constexpr size_t kShortPiece = 64;  // bytes; a scan of this many ranks costs less than a heap

  Rule Find(int32_t left, int32_t right) const;
  void EncodeShort(std::string_view piece, std::vector<int32_t>* ids) const;
  void EncodeLong(std::string_view piece, std::vector<int32_t>* ids) const;

  std::vector<int32_t> byte_ids_;
  std::vector<Rule> byte_pairs_;  // [256 * 256]: the first round of every piece, without hashing
  std::vector<Slot> slots_;       // open addressing, a power of two
  int slot_shift_ = 0;
};

}  // namespace tessera
