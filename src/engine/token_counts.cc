#include "engine/token_counts.h"

#include <algorithm>

#include "core/check.h"

namespace tessera {

TokenCounts::TokenCounts(std::span<const int32_t> prompt, int64_t num_new_max, int64_t vocab_size) {
  std::vector<int32_t> ids(prompt.begin(), prompt.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  entries_.reserve(static_cast<size_t>(std::min(static_cast<int64_t>(ids.size()) + num_new_max, vocab_size)));
  for (const int32_t id : ids) entries_.push_back({id, 0});
}

void TokenCounts::Add(int32_t token_id) noexcept {
  const auto before = [](const Entry& entry, int32_t id) { return entry.token_id < id; };
  auto it = std::lower_bound(entries_.begin(), entries_.end(), token_id, before);
  if (it == entries_.end() || it->token_id != token_id) {
    TSR_CHECK(entries_.size() < entries_.capacity(), "token {} is one more than the {} there is room for", token_id, entries_.capacity());
    it = entries_.insert(it, {token_id, 0});
  }
  ++it->num_generated;
}

}  // namespace tessera
