// The tree against a list of every prefix stored, on small caches whose rows say which tokens wrote them.
#include "engine/prefix_cache.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/hash.h"
#include "core/random.h"
#include "engine/boundaries.h"
#include "engine/engine.h"
#include "engine/step_runner.h"
#include "model/encoder_shortcut.h"
#include "support/golden_model.h"
#include "support/sanitized.h"

namespace tessera {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kContext = 64;
constexpr int64_t kUnlimited = int64_t{1} << 40;
const PrefixKey kKey{1, 2, Numerics::kBf16, Tier::kScalar};

std::vector<CacheLayout> Layouts() {
  return {
      {0, CacheKind::kWindow, 20, 24, 7, 1},
      {0, CacheKind::kEngramHistory, 8, 4, 3, 1},
      {1, CacheKind::kCompressed, kContext / 4 + 1, 32, 0, 4},
      {1, CacheKind::kIndexCodes, kContext / 4 + 1, 8, 0, 4},
      {1, CacheKind::kPending, 8, 16, 8, 4},
      {2, CacheKind::kCompressed, kContext + 1, 12, 0, 1},
  };
}

// What a run over `tokens` leaves in a slot: each row is filled from a hash of its layout and of all tokens up to its own.
void Simulate(KvCache& cache, int32_t slot, const Tokens& tokens) {
  Hasher prefix;
  for (size_t position = 0; position < tokens.size(); ++position) {
    prefix.Add(static_cast<uint64_t>(tokens[position]));
    for (const CacheLayout& layout : cache.layouts()) {
      if (!layout.is_ring() && (position + 1) % static_cast<size_t>(layout.ratio) != 0) continue;
      const RowStore store = cache.Store(layout.layer_idx, layout.kind);
      uint8_t* row = layout.is_ring() ? store.RingRow(slot, static_cast<int64_t>(position))
                                      : store.Row(slot, static_cast<int64_t>(position) / layout.ratio);
      Hasher hasher = prefix;
      hasher.Add(static_cast<uint64_t>(layout.layer_idx * 100 + static_cast<int>(layout.kind)));
      for (int64_t i = 0; i < layout.row_bytes; i += 4) {
        const uint32_t word = static_cast<uint32_t>(hasher.value() >> (i % 32));
        std::memcpy(row + i, &word, 4);
      }
    }
  }
}

// Counter-based draws in [0, count).
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  int64_t operator()(int64_t count) { return static_cast<int64_t>(UniformDouble(seed_, 0, counter_++) * static_cast<double>(count)); }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

// Every prefix stored, with when it was used last. Looks at all of them every time.
class ListedPrefixes {
 public:
  ListedPrefixes(const PrefixCache& cache, int64_t budget) : cache_(cache), budget_(budget) {}

  PrefixMatch Find(const Tokens& tokens) const {
    PrefixMatch match;
    for (const auto& [stored, used] : stored_) {
      const int64_t shared = std::mismatch(stored.begin(), stored.end(), tokens.begin(), tokens.end()).first - stored.begin();
      const bool whole = shared == static_cast<int64_t>(stored.size()) && stored.size() < tokens.size();
      if (whole) match.num_tokens = std::max(match.num_tokens, shared);
      match.shared_tokens = std::max(match.shared_tokens, shared);
    }
    return match;
  }
  void Use(const Tokens& tokens) {
    ++now_;
    for (auto& [stored, used] : stored_)
      if (Begins(stored, tokens)) used = now_;
  }
  bool Insert(const Tokens& tokens) {
    Use(tokens);
    if (stored_.count(tokens) > 0) return true;
    const int64_t parent = Parent(tokens);
    const int64_t bytes = cache_.NodeBytes(parent, static_cast<int64_t>(tokens.size()));
    int64_t ancestors = 0;
    for (const auto& [stored, used] : stored_)
      if (Begins(stored, tokens)) ancestors += cache_.NodeBytes(Parent(stored), static_cast<int64_t>(stored.size()));
    if (ancestors + bytes > budget_) return false;
    while (Bytes() + bytes > budget_) Evict(tokens);
    ++now_;
    stored_[tokens] = now_;
    Use(tokens);
    return true;
  }
  int64_t Bytes() const {
    int64_t bytes = 0;
    for (const auto& [stored, used] : stored_) bytes += cache_.NodeBytes(Parent(stored), static_cast<int64_t>(stored.size()));
    return bytes;
  }
  const std::map<Tokens, int64_t>& stored() const { return stored_; }

 private:
  static bool Begins(const Tokens& a, const Tokens& b) { return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin()); }
  int64_t Parent(const Tokens& tokens) const {
    int64_t parent = 0;
    for (const auto& [stored, used] : stored_)
      if (stored.size() < tokens.size() && Begins(stored, tokens)) parent = std::max(parent, static_cast<int64_t>(stored.size()));
    return parent;
  }
  // The least recently used prefix that no other begins with, but none that `tokens` begins with.
  void Evict(const Tokens& tokens) {
    const Tokens* oldest = nullptr;
    for (const auto& entry : stored_) {
      const Tokens& stored = entry.first;
      const bool inner = std::any_of(stored_.begin(), stored_.end(), [&](const auto& other) {
        return other.first.size() > stored.size() && Begins(stored, other.first);
      });
      if (inner || Begins(stored, tokens)) continue;
      if (oldest == nullptr || entry.second < stored_.at(*oldest)) oldest = &stored;
    }
    ASSERT_NE(oldest, nullptr);
    stored_.erase(Tokens(*oldest));
  }

  const PrefixCache& cache_;
  int64_t budget_;
  std::map<Tokens, int64_t> stored_;
  int64_t now_ = 0;
};

// Texts over a few tokens, so that they share beginnings of every length.
Tokens RandomText(Draws& draw) {
  Tokens tokens(static_cast<size_t>(1 + draw(kContext - 1)));
  const int64_t parts_at = draw(kContext);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int64_t>(i) < parts_at ? static_cast<int32_t>(i % 5) : static_cast<int32_t>(draw(3));
  return tokens;
}

void ExpectRestored(PrefixCache& cache, const PrefixMatch& match, const Tokens& tokens, KvCache& caches) {
  caches.Release(1);
  const PrefixMatch restored = cache.Restore(kKey, tokens, caches, 1);
  ASSERT_EQ(restored.num_tokens, match.num_tokens);
  const Tokens prefix(tokens.begin(), tokens.begin() + match.num_tokens);
  caches.Release(2);
  Simulate(caches, 2, prefix);
  const StateSnapshot got = SnapshotState(caches, 1, {match.num_tokens}), expected = SnapshotState(caches, 2, {match.num_tokens});
  ASSERT_EQ(got.grown, expected.grown) << match.num_tokens << " tokens";
  ASSERT_EQ(got.rings, expected.rings) << match.num_tokens << " tokens";
}

class RandomTreeTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(RandomTreeTest, FindsRestoresCountsAndEvictsAsTheListOfAllPrefixes) {
  const int64_t budget = GetParam();
  for (uint64_t seed = 0; seed < (testing::kSanitized ? 1 : 5); ++seed) {
    KvCache caches(Layouts(), 3);
    PrefixCache cache(Layouts(), budget);
    ListedPrefixes listed(cache, budget);
    Draws draw(seed);
    int64_t hits = 0, refused = 0;
    for (int trial = 0; trial < 300; ++trial) {
      const Tokens text = RandomText(draw);
      const PrefixMatch match = cache.Find(kKey, text), expected = listed.Find(text);
      ASSERT_EQ(match.num_tokens, expected.num_tokens) << "seed " << seed << " trial " << trial;
      ASSERT_EQ(match.shared_tokens, expected.shared_tokens) << "seed " << seed << " trial " << trial;
      if (match.num_tokens > 0) {
        ExpectRestored(cache, match, text, caches);
        listed.Use({text.begin(), text.begin() + match.num_tokens});
        ++hits;
      }
      // Snapshots at a few ends, taken now or some tokens later.
      caches.Release(0);
      int64_t end = 0;
      while (end < static_cast<int64_t>(text.size())) {
        end = std::min<int64_t>(static_cast<int64_t>(text.size()), end + 1 + draw(30));
        const int64_t late = end % 4 == 0 ? draw(5) : 0;
        const int64_t processed = std::min<int64_t>(static_cast<int64_t>(text.size()), end + late);
        Simulate(caches, 0, {text.begin(), text.begin() + processed});
        if (!RingsHold(Layouts(), end, processed)) continue;
        const Tokens prefix(text.begin(), text.begin() + end);
        const bool kept = cache.Insert(kKey, prefix, caches, 0, processed);
        ASSERT_EQ(kept, listed.Insert(prefix)) << "seed " << seed << " trial " << trial << " end " << end;
        refused += !kept;
        ASSERT_EQ(cache.stats().used_bytes, listed.Bytes());
        ASSERT_EQ(cache.stats().num_nodes, static_cast<int64_t>(listed.stored().size()));
        ASSERT_LE(cache.stats().used_bytes, budget);
      }
    }
    EXPECT_GT(hits, 20);
    EXPECT_EQ(cache.stats().num_restores, hits);
    EXPECT_EQ(cache.stats().num_refused, refused);
    EXPECT_EQ(cache.stats().num_evicted > 0, budget < kUnlimited);
    cache.Clear();
    EXPECT_EQ(cache.stats().used_bytes, 0);
    EXPECT_EQ(cache.stats().num_nodes, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Budgets, RandomTreeTest, ::testing::Values(kUnlimited, 40000, 6000, 2500));

class PrefixCacheTest : public ::testing::Test {
 protected:
  bool Insert(const PrefixKey& key, const Tokens& tokens) {
    caches_.Release(0);
    Simulate(caches_, 0, tokens);
    return cache_.Insert(key, tokens, caches_, 0, static_cast<int64_t>(tokens.size()));
  }
  int64_t Hit(const PrefixKey& key, const Tokens& tokens) { return cache_.Find(key, tokens).num_tokens; }

  KvCache caches_{Layouts(), 3};
  PrefixCache cache_{Layouts(), kUnlimited};
};

TEST_F(PrefixCacheTest, AtLeastOneTokenIsLeftToCompute) {
  ASSERT_TRUE(Insert(kKey, {1, 2, 3, 4}));
  EXPECT_EQ(Hit(kKey, {1, 2, 3, 4}), 0);
  EXPECT_EQ(Hit(kKey, {1, 2, 3, 4, 5}), 4);
  EXPECT_EQ(Hit(kKey, {}), 0);
  EXPECT_EQ(cache_.Find(kKey, Tokens{1, 2, 3, 4}).shared_tokens, 4);
}

TEST_F(PrefixCacheTest, AnotherKeyFindsNothing) {
  ASSERT_TRUE(Insert(kKey, {1, 2, 3}));
  std::vector<PrefixKey> others(4, kKey);
  others[0].checkpoint_id = 9;
  others[1].tokenizer_id = 9;
  others[2].numerics = Numerics::kReference;
  others[3].tier = Tier::kAvx2;
  for (const PrefixKey& other : others) {
    EXPECT_EQ(Hit(other, {1, 2, 3, 4}), 0);
    EXPECT_EQ(cache_.Find(other, Tokens{1, 2, 3, 4}).shared_tokens, 0);
  }
  EXPECT_EQ(Hit(kKey, {1, 2, 3, 4}), 3);
}

TEST_F(PrefixCacheTest, RowsThatTwoTextsShareAreKeptOnceWhenTheyGetANodeOfTheirOwn) {
  const Tokens shared(40, 1);
  Tokens first = shared, second = shared;
  first.push_back(2);
  second.push_back(3);
  ASSERT_TRUE(Insert(kKey, first));
  ASSERT_TRUE(Insert(kKey, second));
  EXPECT_EQ(cache_.stats().used_bytes, 2 * cache_.NodeBytes(0, 41));
  ASSERT_TRUE(Insert(kKey, shared));
  EXPECT_EQ(cache_.stats().used_bytes, cache_.NodeBytes(0, 40) + 2 * cache_.NodeBytes(40, 41));
  for (Tokens text : {first, second}) {
    text.push_back(4);
    ExpectRestored(cache_, {41, 41}, text, caches_);
  }
}

TEST_F(PrefixCacheTest, ANodeIsCountedAsItsBytes) {
  ASSERT_TRUE(Insert(kKey, Tokens(40, 1)));
  // 10 entries of 32 + 8 bytes, 40 of 12; 7 window rows, 3 history rows, 4 overlap rows; the tokens.
  const int64_t payload = 10 * 40 + 40 * 12 + 7 * 24 + 3 * 4 + 4 * 16 + 40 * 4;
  EXPECT_GE(cache_.stats().used_bytes, payload);
  EXPECT_LE(cache_.stats().used_bytes, payload + 256);
}

TEST_F(PrefixCacheTest, NothingIsKeptWithoutABudget) {
  PrefixCache off(Layouts(), 0);
  Simulate(caches_, 0, {1, 2, 3});
  EXPECT_FALSE(off.Insert(kKey, Tokens{1, 2, 3}, caches_, 0, 3));
  EXPECT_EQ(off.Find(kKey, Tokens{1, 2, 3, 4}).num_tokens, 0);
  EXPECT_EQ(off.stats().num_nodes, 0);
}

// Real models: what follows a hit has the bits of the cold run, wherever the snapshot was taken.
class PrefixBitsTest : public ::testing::TestWithParam<std::tuple<const char*, Numerics>> {
 protected:
  static constexpr int64_t kNumTokens = 330;

  void SetUp() override {
    const std::string name = std::get<0>(GetParam());
    dir_ = name == "tiny" ? testing::TinyDir() : testing::GoldenDir(name);
    model_ = testing::OpenModel(dir_);
    RunnerOptions options;
    options.numerics = std::get<1>(GetParam());
    options.num_workers = 2;
    options.max_seqs = 3;
    options.max_context = 400;
    options.prefill_rows = 512;
    options.snapshot_reach = kSnapshotReach;
    runner_ = std::make_unique<StepRunner>(*model_, options);
    Draws draw(21);
    for (int64_t i = 0; i < kNumTokens; ++i) ids_.push_back(static_cast<int32_t>(draw(model_->config().vocab_size)));
    vocab_ = model_->config().vocab_size;
    cold_ = testing::LogitsInChunks(*runner_, 0, ids_, [](int64_t) { return kNumTokens; });
    cache_ = std::make_unique<PrefixCache>(runner_->cache().layouts(), kUnlimited);
    key_ = MakePrefixKey(*model_, dir_, options.numerics);
  }
  void Step(int32_t slot, int64_t first, int64_t rows, const std::vector<int64_t>& boundaries) {
    runner_->step().Clear();
    runner_->step().AddSegment(slot, first, ids_.data() + first, static_cast<int32_t>(rows), 0);
    if (!boundaries.empty()) SetDepths(model_->config(), boundaries, runner_->step());
    runner_->Replay();
  }
  std::span<const int32_t> Prefix(int64_t num_tokens) const { return std::span(ids_).first(static_cast<size_t>(num_tokens)); }
  void ExpectBitsOfTheColdRunBehind(int64_t num_tokens) {
    runner_->cache().Release(2);
    ASSERT_EQ(cache_->Restore(key_, Prefix(num_tokens + 1), runner_->cache(), 2).num_tokens, num_tokens);
    for (int64_t first = num_tokens; first < std::min(num_tokens + 12, kNumTokens); first += first == num_tokens ? 9 : 1) {
      const int64_t rows = std::min<int64_t>(first == num_tokens ? 9 : 1, kNumTokens - first);
      runner_->step().Clear();
      runner_->step().AddSegment(2, first, ids_.data() + first, static_cast<int32_t>(rows), static_cast<int32_t>(rows));
      runner_->Replay();
      for (int64_t row = 0; row < rows; ++row)
        ASSERT_EQ(std::memcmp(cold_.data() + (first + row) * vocab_, runner_->logits().Row(row), static_cast<size_t>(vocab_) * 4), 0)
            << "snapshot after " << num_tokens << " tokens, position " << first + row;
    }
  }

  std::string dir_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<PrefixCache> cache_;
  PrefixKey key_;
  Tokens ids_;
  std::vector<float> cold_;  // logits of every position
  int64_t vocab_ = 0;
};

TEST_P(PrefixBitsTest, SnapshotsAtEndsOfEveryKind) {
  std::vector<int64_t> ends;
  for (int64_t end = 1; end < kNumTokens; end += end < 20 || (end > 122 && end < 134) || (end > 252 && end < 262) ? 1 : 17)
    if (!testing::kSanitized || end % 7 == 0) ends.push_back(end);
  int64_t done = 0;
  for (const int64_t end : ends) {
    Step(1, done, end - done, {});
    ASSERT_TRUE(cache_->Insert(key_, Prefix(end), runner_->cache(), 1, end));
    done = end;
  }
  for (const int64_t end : ends) ExpectBitsOfTheColdRunBehind(end);
  EXPECT_EQ(cache_->stats().num_restores, static_cast<int64_t>(ends.size()));
}

TEST_P(PrefixBitsTest, SnapshotsBehindWhichTheChunkHasGoneOn) {
  ASSERT_EQ(SnapshotStride(model_->config()), 128);
  const std::vector<std::vector<int64_t>> chunks = {{200, 330}, {129, 300, 330}, {128, 330}, {256, 284, 330}, {100, 250, 330}};
  for (const std::vector<int64_t>& chunk_ends : testing::kSanitized ? std::vector<std::vector<int64_t>>{{200, 330}} : chunks) {
    cache_->Clear();
    runner_->cache().Release(1);
    int64_t done = 0;
    for (const int64_t end : chunk_ends) {
      Step(1, done, end - done, {128, 256, kNumTokens});
      for (const int64_t boundary : {128, 256}) {
        if (done >= boundary || boundary > end || end - boundary > kSnapshotReach) continue;
        ASSERT_TRUE(cache_->Insert(key_, Prefix(boundary), runner_->cache(), 1, end));
      }
      done = end;
    }
    EXPECT_GT(cache_->stats().num_nodes, 0);
    for (const int64_t boundary : {128, 256})
      if (cache_->Find(key_, Prefix(boundary + 1)).num_tokens == boundary) ExpectBitsOfTheColdRunBehind(boundary);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PrefixBitsTest,
                         ::testing::Combine(::testing::Values("v4_tiny", "v41_tiny", "tiny"),
                                            ::testing::Values(Numerics::kBf16, Numerics::kFp32)));

TEST(PrefixKeyTest, NamesModelTokenizerNumericsAndTier) {
  const std::unique_ptr<Model> model = testing::OpenModel(testing::TinyDir());
  const PrefixKey key = MakePrefixKey(*model, testing::TinyDir(), Numerics::kFp32);
  EXPECT_EQ(key.checkpoint_id, model->checkpoint().checkpoint_id());
  EXPECT_NE(key.tokenizer_id, 0u);
  EXPECT_EQ(key.numerics, Numerics::kFp32);
  EXPECT_EQ(key.tier, ActiveTier());
  EXPECT_EQ(MakePrefixKey(*model, testing::GoldenDir("configs"), Numerics::kFp32).tokenizer_id, 0u);
}

Tokens RandomText(uint64_t stream, int64_t count, int64_t vocab_size) {
  Tokens ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(UniformDouble(31, stream, static_cast<uint64_t>(i)) * static_cast<double>(vocab_size)));
  return ids;
}

// The engine, with and without a prefix cache.
class PrefixReuseTest : public ::testing::Test {
 protected:
  struct Answer {
    Tokens ids;
    EndReason end_reason = EndReason::kNone;
    std::string error;
    Usage usage;
  };
  PrefixReuseTest() {
    EngineOptions options;
    options.model_dir = testing::TinyDir();
    options.threads = 2;
    options.max_seqs = 3;
    options.max_context = 1024;
    options.prefill_rows = 64;
    warm_ = Engine::Open(options);
    options.prefix_cache_mib = 0;
    cold_ = Engine::Open(options);
    vocab_size_ = warm_->config().vocab_size;
  }
  // The answer to a prompt, the same with and without a prefix cache. The prompt of the next turn begins with what `prompt` becomes.
  Usage Ask(Tokens& prompt) {
    Request request;
    request.prompt_ids = prompt;
    request.max_tokens = 9;
    request.ignore_eos = true;
    request.sampling.temperature = 0.8F;
    request.sampling.seed = prompt.size();
    const Answer cold = RunAlone(*cold_, request), warm = RunAlone(*warm_, request);
    EXPECT_EQ(warm.ids, cold.ids);
    EXPECT_EQ(cold.usage.prefix_hit_tokens, 0);
    EXPECT_EQ(warm.usage.prompt_tokens, static_cast<int64_t>(prompt.size()));
    prompt.insert(prompt.end(), warm.ids.begin(), warm.ids.end());
    return warm.usage;
  }
  void Say(uint64_t stream, int64_t count, Tokens& prompt) const {
    const Tokens ids = RandomText(stream, count, vocab_size_);
    prompt.insert(prompt.end(), ids.begin(), ids.end());
  }

  static Answer RunAlone(Engine& engine, Request request) {
    engine.Submit(std::move(request));
    Answer answer;
    std::vector<Event> events;
    while (engine.Step(events)) {
    }
    for (const Event& event : events) {
      if (event.token_id >= 0) answer.ids.push_back(event.token_id);
      answer.error += event.error;
      answer.end_reason = event.end_reason;
      answer.usage = event.usage;
    }
    EXPECT_TRUE(engine.idle());
    return answer;
  }

  std::unique_ptr<Engine> warm_, cold_;
  int64_t vocab_size_ = 0;
};

TEST_F(PrefixReuseTest, EveryTurnOfAChatBeginsBehindTheAnswerBefore) {
  Tokens prompt;
  Say(0, 150, prompt);
  int64_t hit_tokens = 0, prompt_tokens = 0;
  for (uint64_t turn = 0; turn < 6; ++turn) {
    Say(1 + turn, 5 + 23 * static_cast<int64_t>(turn), prompt);
    const int64_t before = static_cast<int64_t>(prompt.size()) - 5 - 23 * static_cast<int64_t>(turn);
    const Usage usage = Ask(prompt);
    // All that was processed: the last token of an answer never is.
    EXPECT_EQ(usage.prefix_hit_tokens, turn == 0 ? 0 : before - 1) << "turn " << turn;
    hit_tokens += usage.prefix_hit_tokens;
    prompt_tokens += usage.prompt_tokens;
  }
  EXPECT_EQ(warm_->prefix_cache().stats().hit_tokens, hit_tokens);
  EXPECT_GT(hit_tokens, prompt_tokens * 6 / 10);
}

TEST_F(PrefixReuseTest, ConversationsShareTheirSystemPromptFromTheThirdOn) {
  std::vector<int64_t> hits;
  for (uint64_t conversation = 0; conversation < 5; ++conversation) {
    Tokens prompt;
    Say(0, 300, prompt);
    Say(100 + conversation, 150, prompt);
    hits.push_back(Ask(prompt).prefix_hit_tokens);
  }
  // The first leaves snapshots behind its own question. The second parts from it at 300 and leaves one at 256.
  EXPECT_EQ(hits, (std::vector<int64_t>{0, 0, 256, 256, 256}));
}

TEST_F(PrefixReuseTest, ThePromptAgainComputesItsLastTokensOnly) {
  for (const int64_t num_prompt : {100, 128, 129, 256, 300, 512}) {
    Tokens prompt;
    Say(static_cast<uint64_t>(num_prompt), num_prompt, prompt);
    Tokens again = prompt;
    EXPECT_EQ(Ask(prompt).prefix_hit_tokens, 0);
    EXPECT_EQ(Ask(again).prefix_hit_tokens, (num_prompt - 1) / 128 * 128) << num_prompt;
  }
}

TEST_F(PrefixReuseTest, WhatWasBrokenOffIsKeptUpToItsLastBoundary) {
  Request request;
  request.prompt_ids = RandomText(7, 200, vocab_size_);
  request.max_tokens = 50;
  request.ignore_eos = true;
  const Ticket ticket = warm_->Submit(request);
  std::vector<Event> events;
  for (int i = 0; i < 3; ++i) warm_->Step(events);  // 192 of 200 tokens
  warm_->Cancel(ticket);
  while (warm_->Step(events)) {
  }
  EXPECT_EQ(warm_->prefix_cache().stats().num_nodes, 1);
  Tokens prompt = request.prompt_ids;
  EXPECT_EQ(Ask(prompt).prefix_hit_tokens, 128);
}

TEST_F(PrefixReuseTest, MemoryTheHostHasNotGotEndsTheRequestThatNeedsIt) {
  Tokens prompt;
  Say(0, 200, prompt);
  // A hole where rows of the first slot are, which the kernel answers as if it were out of memory.
  KvCache& cache = warm_->runner().cache();
  const RowStore store = cache.Store(0, CacheKind::kWindow);
  ASSERT_EQ(munmap(store.Slot(0), 4096), 0);
  Request request;
  request.prompt_ids = prompt;
  const Answer failed = RunAlone(*warm_, request);
  EXPECT_EQ(failed.end_reason, EndReason::kError);
  EXPECT_NE(failed.error.find("no memory for the caches of this sequence"), std::string::npos) << failed.error;
  ASSERT_NE(mmap(store.Slot(0), 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), MAP_FAILED);
  EXPECT_EQ(Ask(prompt).prefix_hit_tokens, 0);
}

}  // namespace
}  // namespace tessera
