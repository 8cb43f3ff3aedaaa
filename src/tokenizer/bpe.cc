#include "tokenizer/bpe.h"

#include <array>
#include <bit>
#include <queue>

#include "core/check.h"

namespace tessera {
namespace {

constexpr uint64_t kEmptyPair = UINT64_MAX;  // ids are not negative, so no pair has this value

uint64_t PairKey(int32_t left, int32_t right) { return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right); }
uint64_t Mix(uint64_t key) { return key * 0x9e3779b97f4a7c15u ^ (key >> 32) * 0xd6e8feb86659fd93u; }

}  // namespace

Bpe::Bpe(std::span<const int32_t> byte_ids, std::span<const Merge> merges) : byte_ids_(byte_ids.begin(), byte_ids.end()) {
  TSR_CHECK(byte_ids.size() == 256, "{} byte tokens", byte_ids.size());
  const size_t num_slots = std::bit_ceil(2 * merges.size() + 2);
  slot_shift_ = 64 - std::countr_zero(num_slots);
  slots_.assign(num_slots, {kEmptyPair, {kNoMerge, -1}});
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t key = PairKey(merges[rank].left, merges[rank].right);
    size_t slot = Mix(key) >> slot_shift_;
    while (slots_[slot].pair != kEmptyPair) slot = (slot + 1) & (num_slots - 1);
    slots_[slot] = {key, {static_cast<uint32_t>(rank), merges[rank].result}};
  }
  byte_pairs_.resize(size_t{256} * 256);
  for (size_t i = 0; i < byte_pairs_.size(); ++i) byte_pairs_[i] = Find(byte_ids_[i >> 8], byte_ids_[i & 255]);
}

Bpe::Rule Bpe::Find(int32_t left, int32_t right) const {
  const uint64_t key = PairKey(left, right);
  size_t slot = Mix(key) >> slot_shift_;
  while (slots_[slot].pair != key) {
    if (slots_[slot].pair == kEmptyPair) return {kNoMerge, -1};
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slots_[slot].rule;
}

void Bpe::Encode(std::string_view piece, std::vector<int32_t>* ids) const {
  if (piece.size() <= kShortPiece) {
    EncodeShort(piece, ids);
  } else {
    EncodeLong(piece, ids);
  }
}

void Bpe::EncodeShort(std::string_view piece, std::vector<int32_t>* ids) const {
  std::array<int32_t, kShortPiece> symbols;
  std::array<Rule, kShortPiece> rules;  // rules[i]: of the pair (i, i + 1)
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) symbols[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i + 1 < count; ++i) rules[i] = byte_pairs_[static_cast<uint8_t>(piece[i]) << 8 | static_cast<uint8_t>(piece[i + 1])];
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (rules[i].rank < rules[best].rank) best = i;
    }
    if (rules[best].rank == kNoMerge) break;
    symbols[best] = rules[best].result;
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < count; ++i) rules[i] = rules[i + 1];
    if (best + 1 < count) rules[best] = Find(symbols[best], symbols[best + 1]);
    if (best > 0) rules[best - 1] = Find(symbols[best - 1], symbols[best]);
  }
  ids->insert(ids->end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
}

// Symbols form a linked list inside an array; the heap holds candidate merges by (rank, position). A candidate is stale when either of its
// symbols has changed since, which the pair stored with it shows.
void Bpe::EncodeLong(std::string_view piece, std::vector<int32_t>* ids) const {
  struct Symbol {
    int32_t id;
    int64_t previous;
    int64_t next;  // -1 at the end
  };
  struct Candidate {
    uint32_t rank;
    int32_t result;
    int64_t position;
    uint64_t pair;
    bool operator<(const Candidate& other) const {  // std::priority_queue gives the largest first
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const auto count = static_cast<int64_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  for (int64_t i = 0; i < count; ++i) symbols[i] = {byte_ids_[static_cast<uint8_t>(piece[i])], i - 1, i + 1 < count ? i + 1 : -1};
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](int64_t position) {
    const int64_t next = symbols[position].next;
    if (next < 0) return;
    const Rule rule = Find(symbols[position].id, symbols[next].id);
    if (rule.rank != kNoMerge) candidates.push({rule.rank, rule.result, position, PairKey(symbols[position].id, symbols[next].id)});
  };
  for (int64_t i = 0; i + 1 < count; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate candidate = candidates.top();
    candidates.pop();
    Symbol& symbol = symbols[candidate.position];
    if (symbol.id < 0 || symbol.next < 0 || PairKey(symbol.id, symbols[symbol.next].id) != candidate.pair) continue;
    Symbol& right = symbols[symbol.next];
    symbol.id = candidate.result;
    right.id = -1;  // gone
    symbol.next = right.next;
    if (symbol.next >= 0) symbols[symbol.next].previous = candidate.position;
    if (symbol.previous >= 0) consider(symbol.previous);
    consider(candidate.position);
  }
  for (int64_t i = 0; i >= 0; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace tessera
