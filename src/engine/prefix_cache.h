// Snapshots of sequences, kept by the tokens that led to them, so that a prompt which begins like an earlier text starts behind the part
// they share. What comes out is the state a cold run would have reached, to the bit.
//
// Snapshots form a tree: a node stands for a list of tokens and holds what its state adds to its parent's (grown rows of the tokens between
// them) beside the rings at its own end. A node's bytes are counted exactly; beyond the budget the least recently used node without
// children goes first. One thread calls, between steps.
#pragma once

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "attention/kv_cache.h"
#include "kernels/tier.h"
#include "model/model.h"
#include "model/sequence_state.h"

namespace tessera {

// Everything but the tokens that bits depend on. Under another key nothing is found.
struct PrefixKey {
  uint64_t checkpoint_id = 0;
  uint64_t tokenizer_id = 0;  // Engram hashes go through the tokenizer's map of ids
  Numerics numerics = Numerics::kBf16;
  Tier tier = Tier::kScalar;

  auto operator<=>(const PrefixKey&) const = default;
};
// The key of `model` as it runs now. A model directory without tokenizer.json has tokenizer id 0.
PrefixKey MakePrefixKey(const Model& model, const std::string& model_dir, Numerics numerics);

struct PrefixMatch {
  int64_t num_tokens = 0;     // of the deepest snapshot that is a beginning of the tokens and shorter than they are; 0: none
  int64_t shared_tokens = 0;  // the longest beginning the tokens share with any text that has a snapshot, at least num_tokens
};

struct PrefixCacheStats {
  int64_t budget_bytes = 0;
  int64_t used_bytes = 0;
  int64_t num_nodes = 0;
  int64_t num_restores = 0;  // prompts that started behind a snapshot
  int64_t hit_tokens = 0;    // tokens they did not compute
  int64_t num_evicted = 0;
  int64_t num_refused = 0;  // snapshots that did not fit
};

class PrefixCache {
 public:
  // For caches of these layouts. A budget of 0 keeps nothing.
  PrefixCache(std::vector<CacheLayout> layouts, int64_t budget_bytes);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // What Restore would do, without doing it. At least one token of `tokens` is always left to compute.
  PrefixMatch Find(const PrefixKey& key, std::span<const int32_t> tokens) const;
  // Puts the state after the match's num_tokens into `slot` and counts its node as used. The slot's pages should be populated.
  PrefixMatch Restore(const PrefixKey& key, std::span<const int32_t> tokens, KvCache& cache, int32_t slot);
  // Keeps the state after exactly `tokens` of the sequence in `slot`, which has processed `num_processed` tokens and whose rings still
  // hold that state. What is known already is only counted as used. Returns false when it does not fit the budget, and nothing has
  // changed, or the host's memory: older snapshots may then have made room for nothing.
  bool Insert(const PrefixKey& key, std::span<const int32_t> tokens, const KvCache& cache, int32_t slot, int64_t num_processed);
  // Forgets everything.
  void Clear();

  // Bytes of a node for `num_tokens` tokens below one for `parent_tokens`.
  int64_t NodeBytes(int64_t parent_tokens, int64_t num_tokens) const;
  PrefixCacheStats stats() const { return stats_; }

 private:
  struct Node {
    Node* parent = nullptr;
    std::vector<int32_t> tokens;  // those since the parent
    StateSnapshot state;
    std::vector<std::unique_ptr<Node>> children;
    std::list<Node*>::iterator age;  // place in used_; a root is not in it

    int64_t num_tokens() const { return state.num_tokens; }
    bool is_root() const { return parent == nullptr; }
  };
  // The deepest node whose tokens begin `tokens`.
  Node* Deepest(const PrefixKey& key, std::span<const int32_t> tokens) const;
  void Touch(Node* node);
  bool MakeRoom(const Node* parent, int64_t bytes);
  void Remove(Node* leaf);
  void Adopt(Node* node, Node* parent);

  std::vector<CacheLayout> layouts_;
  std::map<PrefixKey, std::unique_ptr<Node>> roots_;
  // Least recently used first. A node is touched with its ancestors, them after it, so the first one never has children.
  std::list<Node*> used_;
  PrefixCacheStats stats_;
};

}  // namespace tessera
