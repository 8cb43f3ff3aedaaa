#include "engine/prefix_cache.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"

namespace tessera {
namespace {

constexpr size_t kTokenizerBytesMax = size_t{1} << 30;

int64_t CommonLength(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

bool StartsWith(std::span<const int32_t> tokens, std::span<const int32_t> beginning) {
  return beginning.size() <= tokens.size() && std::equal(beginning.begin(), beginning.end(), tokens.begin());
}

}  // namespace

PrefixKey MakePrefixKey(const Model& model, const std::string& model_dir, Numerics numerics) {
  PrefixKey key{model.checkpoint().checkpoint_id(), 0, numerics, ActiveTier()};
  const std::string tokenizer_path = model_dir + "/tokenizer.json";
  if (!FileExists(tokenizer_path)) return key;
  Hasher hasher;
  hasher.Add(ReadFile(tokenizer_path, kTokenizerBytesMax));
  key.tokenizer_id = hasher.value();
  return key;
}

PrefixCache::PrefixCache(std::vector<CacheLayout> layouts, int64_t budget_bytes) : layouts_(std::move(layouts)) {
  stats_.budget_bytes = budget_bytes;
}

PrefixCache::~PrefixCache() { Clear(); }

int64_t PrefixCache::NodeBytes(int64_t parent_tokens, int64_t num_tokens) const {
  // What the allocator and the list add is a constant a node, and small beside the rings.
  constexpr int64_t kNodeBytes = sizeof(Node) + sizeof(Node*) + sizeof(std::unique_ptr<Node>);
  return SnapshotBytes(layouts_, {num_tokens, parent_tokens}) + (num_tokens - parent_tokens) * int64_t{sizeof(int32_t)} + kNodeBytes;
}

PrefixCache::Node* PrefixCache::Deepest(const PrefixKey& key, std::span<const int32_t> tokens) const {
  const auto root = roots_.find(key);
  if (root == roots_.end()) return nullptr;
  Node* node = root->second.get();
  for (;;) {
    const std::span<const int32_t> rest = tokens.subspan(static_cast<size_t>(node->num_tokens()));
    // At most one child begins the rest: a child that began another's tokens would be its parent.
    const auto child =
        std::find_if(node->children.begin(), node->children.end(), [&](const auto& other) { return StartsWith(rest, other->tokens); });
    if (child == node->children.end()) return node;
    node = child->get();
  }
}

PrefixMatch PrefixCache::Find(const PrefixKey& key, std::span<const int32_t> tokens) const {
  if (tokens.empty()) return {};
  const Node* node = Deepest(key, tokens.first(tokens.size() - 1));
  if (node == nullptr) return {};
  PrefixMatch match{node->num_tokens(), node->num_tokens()};
  const std::span<const int32_t> rest = tokens.subspan(static_cast<size_t>(node->num_tokens()));
  for (const std::unique_ptr<Node>& child : node->children)
    match.shared_tokens = std::max(match.shared_tokens, node->num_tokens() + CommonLength(rest, child->tokens));
  return match;
}

PrefixMatch PrefixCache::Restore(const PrefixKey& key, std::span<const int32_t> tokens, KvCache& cache, int32_t slot) {
  const PrefixMatch match = Find(key, tokens);
  if (match.num_tokens == 0) return match;
  Node* node = Deepest(key, tokens.first(tokens.size() - 1));
  for (const Node* before = node->parent; !before->is_root(); before = before->parent) RestoreGrown(cache, slot, before->state);
  RestoreState(cache, slot, node->state);
  Touch(node);
  stats_.num_restores += 1;
  stats_.hit_tokens += match.num_tokens;
  return match;
}

bool PrefixCache::Insert(const PrefixKey& key, std::span<const int32_t> tokens, const KvCache& cache, int32_t slot,
                         int64_t num_processed) {
  if (tokens.empty() || stats_.budget_bytes <= 0) return false;
  std::unique_ptr<Node>& root = roots_[key];
  if (root == nullptr) root = std::make_unique<Node>();
  Node* parent = Deepest(key, tokens);
  Touch(parent);
  const int64_t num_tokens = static_cast<int64_t>(tokens.size());
  if (parent->num_tokens() == num_tokens) return true;
  const int64_t bytes = NodeBytes(parent->num_tokens(), num_tokens);
  if (!MakeRoom(parent, bytes)) {
    stats_.num_refused += 1;
    return false;
  }
  // Everything that needs memory comes before the first link to the node.
  std::unique_ptr<Node> node;
  std::list<Node*> age;
  try {
    node = std::make_unique<Node>();
    age.push_back(node.get());
    node->children.reserve(parent->children.size());  // it may adopt all of them
    parent->children.reserve(parent->children.size() + 1);
    const std::span<const int32_t> edge = tokens.subspan(static_cast<size_t>(parent->num_tokens()));
    node->tokens.assign(edge.begin(), edge.end());
    node->state = SnapshotState(cache, slot, {num_tokens, parent->num_tokens(), num_processed});
  } catch (const std::bad_alloc&) {
    stats_.num_refused += 1;
    return false;
  }
  node->parent = parent;
  node->age = age.begin();
  used_.splice(used_.end(), age);
  stats_.used_bytes += bytes;
  stats_.num_nodes += 1;
  Node* added = node.get();
  Adopt(added, parent);
  parent->children.push_back(std::move(node));
  Touch(added);
  return true;
}

// Children of `parent` whose tokens go on from `node`'s become its children, without the rows that are now its.
void PrefixCache::Adopt(Node* node, Node* parent) {
  const auto first_adopted =
      std::stable_partition(parent->children.begin(), parent->children.end(),
                            [&](const std::unique_ptr<Node>& child) { return !StartsWith(child->tokens, node->tokens); });
  for (auto child = first_adopted; child != parent->children.end(); ++child) {
    stats_.used_bytes -= NodeBytes(parent->num_tokens(), (*child)->num_tokens());
    std::vector<int32_t>& edge = (*child)->tokens;
    edge.erase(edge.begin(), edge.begin() + static_cast<std::ptrdiff_t>(node->tokens.size()));
    edge.shrink_to_fit();
    (*child)->parent = node;
    TrimSnapshot(layouts_, node->num_tokens(), (*child)->state);
    stats_.used_bytes += NodeBytes(node->num_tokens(), (*child)->num_tokens());
    node->children.push_back(std::move(*child));
  }
  parent->children.erase(first_adopted, parent->children.end());
}

void PrefixCache::Touch(Node* node) {
  for (; !node->is_root(); node = node->parent) used_.splice(used_.end(), used_, node->age);
}

// Evicts until `bytes` more fit, but none of `parent` and its ancestors, which were touched last. False, and nothing evicted, when that is
// not enough.
bool PrefixCache::MakeRoom(const Node* parent, int64_t bytes) {
  int64_t kept_bytes = 0;
  for (const Node* node = parent; !node->is_root(); node = node->parent)
    kept_bytes += NodeBytes(node->parent->num_tokens(), node->num_tokens());
  if (kept_bytes + bytes > stats_.budget_bytes) return false;
  while (stats_.used_bytes + bytes > stats_.budget_bytes) {
    Remove(used_.front());
    stats_.num_evicted += 1;
  }
  return true;
}

void PrefixCache::Remove(Node* leaf) {
  TSR_CHECK(leaf->children.empty(), "a snapshot of {} tokens with {} below it", leaf->num_tokens(), leaf->children.size());
  Node* parent = leaf->parent;
  stats_.used_bytes -= NodeBytes(parent->num_tokens(), leaf->num_tokens());
  stats_.num_nodes -= 1;
  used_.erase(leaf->age);
  std::erase_if(parent->children, [&](const std::unique_ptr<Node>& child) { return child.get() == leaf; });
}

void PrefixCache::Clear() {
  // Leaf by leaf: a long chat is a deep tree, and destroying it by recursion would need as deep a stack.
  while (!used_.empty()) Remove(used_.front());
  roots_.clear();
}

}  // namespace tessera
