#include "attention/sparse_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/rope.h"
#include "reference/convert_ref.h"
#include "reference/sparse_attention_ref.h"
#include "support/kernel_inputs.h"
#include "support/op_inputs.h"

namespace tessera {
namespace {

using testing::ForEachTier;
using testing::kRounding;
using testing::RandomValues;
using testing::RunOnWorkers;
using testing::SameBits;
using testing::StepRows;

constexpr int64_t kHeadDim = 64, kRopeDims = 16, kWindow = 6, kTokens = 45;
constexpr int32_t kChunkMax = 9;
constexpr int kHeads = 5, kRatio = 3;
constexpr int32_t kSlots = 2;

enum class Mode { kWindowOnly, kAllEntries, kSelected };

// Two sequences with a window ring that wraps several times, and compressed entries that were all stored beforehand: those a row must not
// see yet would change its result.
template <class T>
class Problem {
 public:
  Problem(bool v41, Mode mode, bool round_probabilities = false)
      : mode_(mode),
        window_layout_(KvRowLayout::Make(v41 ? KvFormat::kV41Window : KvFormat::kV4, kHeadDim, kRopeDims, sizeof(T))),
        compressed_layout_(KvRowLayout::Make(v41 ? KvFormat::kV41Compressed : KvFormat::kV4, kHeadDim, kRopeDims, sizeof(T))),
        cache_({{0, CacheKind::kWindow, kWindow - 1 + kChunkMax, window_layout_.row_bytes, kWindow - 1, 1},
                {0, CacheKind::kCompressed, kTokens / kRatio + 1, compressed_layout_.row_bytes, 0, kRatio}},
               kSlots),
        sink_(RandomValues<float>(3, kHeads, -1, 2)),
        round_probabilities_(round_probabilities) {
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const uint64_t seed = 10 + static_cast<uint64_t>(slot);
      tokens_[slot] = RandomValues<T>(seed, kTokens * kHeadDim, -2, 2);
      queries_[slot] = RandomValues<T>(seed + 10, kTokens * kHeads * kHeadDim, -3, 3);
      const std::vector<T> entries = RandomValues<T>(seed + 20, kTokens / kRatio * kHeadDim, -2, 2);
      for (int64_t entry = 0; entry < kTokens / kRatio; ++entry)
        EncodeKvRow<T>(compressed_layout_, entries.data() + entry * kHeadDim, cache_.Store(0, CacheKind::kCompressed).Row(slot, entry));
      stored_tokens_[slot] = Stored(window_layout_, tokens_[slot]);
      stored_entries_[slot] = Stored(compressed_layout_, entries);
      const std::vector<float> frequencies = RopeFrequencies({kRopeDims, 10000});
      cos_.resize(kTokens * kRopeDims / 2);
      sin_.resize(cos_.size());
      for (int64_t position = 0; position < kTokens; ++position)
        RopeCosSin(position, frequencies.data(), kRopeDims, &cos_[static_cast<size_t>(position * kRopeDims / 2)],
                   &sin_[static_cast<size_t>(position * kRopeDims / 2)]);
      std::mt19937_64 random(seed);
      for (int64_t position = 0; position < kTokens; ++position) {
        std::vector<int32_t> chosen;
        for (int32_t entry = 0; entry < (position + 1) / kRatio; ++entry)
          if (random() % 2 == 0 && chosen.size() < kSelectedMax) chosen.push_back(entry);
        selected_[slot].push_back(std::move(chosen));
      }
    }
  }

  struct Part {
    int32_t slot;
    int64_t start_pos;
    int32_t num_rows;
  };
  // Stores the window rows of a step and attends; the rows' outputs one after the other.
  std::vector<T> Run(const std::vector<Part>& parts, int num_workers) const {
    StepRows rows(2 * kChunkMax);
    std::vector<T> q;
    std::vector<float> cos, sin;
    std::vector<int32_t> selected, counts;
    for (const Part& part : parts) {
      rows.Add(part.slot, part.start_pos, part.num_rows);
      for (int64_t position = part.start_pos; position < part.start_pos + part.num_rows; ++position) {
        EncodeKvRow<T>(window_layout_, tokens_[part.slot].data() + position * kHeadDim,
                       cache_.Store(0, CacheKind::kWindow).RingRow(part.slot, position));
        const auto append = [&](const auto& from, int64_t width, auto& to) {
          to.insert(to.end(), from.begin() + position * width, from.begin() + (position + 1) * width);
        };
        append(queries_[part.slot], kHeads * kHeadDim, q);
        append(cos_, kRopeDims / 2, cos);
        append(sin_, kRopeDims / 2, sin);
        const std::vector<int32_t>& chosen = selected_[part.slot][static_cast<size_t>(position)];
        counts.push_back(static_cast<int32_t>(chosen.size()));
        selected.insert(selected.end(), chosen.begin(), chosen.end());
        selected.resize(counts.size() * kSelectedMax, 1 << 30);
      }
    }
    const int64_t num_rows = rows.step().num_rows;
    std::vector<T> out(q.size());
    SparseAttentionArguments<T> arguments;
    arguments.step = &rows.step();
    arguments.rows = rows.step().AllRows();
    arguments.num_heads = kHeads;
    arguments.q = MakeView<const T>(q.data(), num_rows, kHeads * kHeadDim);
    arguments.window_tokens = kWindow;
    arguments.window = cache_.Store(0, CacheKind::kWindow);
    arguments.window_layout = window_layout_;
    int64_t entries_max = kWindow;
    if (mode_ != Mode::kWindowOnly) {
      arguments.compressed = cache_.Store(0, CacheKind::kCompressed);
      arguments.compressed_layout = compressed_layout_;
      arguments.ratio = kRatio;
      entries_max += kTokens / kRatio;
    }
    if (mode_ == Mode::kSelected) {
      arguments.selected = selected.data();
      arguments.selected_counts = counts.data();
      arguments.selected_stride = kSelectedMax;
    }
    arguments.sink = sink_.data();
    arguments.round_probabilities = round_probabilities_;
    arguments.cos = MakeView<const float>(cos.data(), num_rows, kRopeDims / 2);
    arguments.sin = MakeView<const float>(sin.data(), num_rows, kRopeDims / 2);
    arguments.out = MakeView(out.data(), num_rows, kHeads * kHeadDim);
    RunOnWorkers(num_workers, SparseAttentionScratchBytes<T>(kHeadDim, entries_max),
                 [&](const WorkerContext& worker) { AttendRows<T>(arguments, worker); });
    return out;
  }

  void ExpectTwin(int32_t slot, int64_t position, const T* out) const {
    std::vector<T> kv;
    const auto add = [&](const std::vector<T>& from, int64_t row) {
      kv.insert(kv.end(), from.begin() + row * kHeadDim, from.begin() + (row + 1) * kHeadDim);
    };
    for (int64_t seen = std::max<int64_t>(0, position - kWindow + 1); seen <= position; ++seen) add(stored_tokens_[slot], seen);
    if (mode_ == Mode::kAllEntries)
      for (int64_t entry = 0; entry < (position + 1) / kRatio; ++entry) add(stored_entries_[slot], entry);
    if (mode_ == Mode::kSelected)
      for (const int32_t entry : selected_[slot][static_cast<size_t>(position)]) add(stored_entries_[slot], entry);
    const View<const T> seen = MakeView<const T>(kv.data(), static_cast<int64_t>(kv.size()) / kHeadDim, kHeadDim);
    for (int64_t head = 0; head < kHeads; ++head) {
      const reference::AttendResult expected = reference::AttendAndRotateBack<T>(
          queries_[slot].data() + (position * kHeads + head) * kHeadDim, seen, sink_[static_cast<size_t>(head)], round_probabilities_,
          cos_.data() + position * kRopeDims / 2, sin_.data() + position * kRopeDims / 2, kRopeDims, kRounding<T>);
      for (int64_t c = 0; c < kHeadDim; ++c) {
        const double value = ToFloat(out[head * kHeadDim + c]);
        ASSERT_LE(std::fabs(value - expected.out[static_cast<size_t>(c)]), expected.error[static_cast<size_t>(c)])
            << "position " << position << " head " << head << " column " << c;
      }
    }
  }

 private:
  static constexpr size_t kSelectedMax = 7;

  // What a cache returns for vectors that were put into it, by the scalar definitions of the quantisers.
  static std::vector<T> Stored(const KvRowLayout& layout, const std::vector<T>& vectors) {
    std::vector<T> stored;
    const bool q4e = layout.format == KvFormat::kV41Compressed;
    const auto quantizer = q4e ? testing::QuantizerRef::kQ4e : testing::QuantizerRef::kQ8;
    const size_t block = q4e ? 16 : layout.format == KvFormat::kV4 ? 64 : 32;
    const int64_t quantized = layout.format == KvFormat::kV4 ? kHeadDim - kRopeDims : kHeadDim;
    for (auto x = vectors.begin(); x != vectors.end(); x += kHeadDim) {
      const std::vector<float> head = testing::ToFloats(std::vector<T>(x, x + quantized));
      const auto codes = testing::QuantizeRef(quantizer, head, block);
      for (const float value : testing::DequantizeRef(quantizer, codes, head.size(), block)) stored.push_back(FromFloat<T>(value));
      stored.insert(stored.end(), x + quantized, x + kHeadDim);
    }
    return stored;
  }

  Mode mode_;
  KvRowLayout window_layout_, compressed_layout_;
  KvCache cache_;
  std::vector<T> tokens_[kSlots], queries_[kSlots], stored_tokens_[kSlots], stored_entries_[kSlots];
  std::vector<std::vector<int32_t>> selected_[kSlots];
  std::vector<float> sink_, cos_, sin_;
  bool round_probabilities_;
};

template <class T>
class SparseAttentionTest : public ::testing::Test {};
using ActivationTypes = ::testing::Types<bf16, float>;
TYPED_TEST_SUITE(SparseAttentionTest, ActivationTypes);

template <class F>
void ForEachMode(const F& body) {
  for (const bool v41 : {false, true})
    for (const Mode mode : {Mode::kWindowOnly, Mode::kAllEntries, Mode::kSelected}) {
      SCOPED_TRACE(::testing::Message() << (v41 ? "V4.1" : "V4") << " mode " << static_cast<int>(mode));
      body(v41, mode);
    }
}

// Both sequences through all positions, in chunks of any size up to the largest, the second some tokens behind the first.
TYPED_TEST(SparseAttentionTest, EveryPositionMatchesTheTwin) {
  ForEachTier([] {
    ForEachMode([](bool v41, Mode mode) {
      const Problem<TypeParam> problem(v41, mode);
      int64_t done[kSlots] = {};
      for (int step_idx = 0; done[1] < kTokens; ++step_idx) {
        std::vector<typename Problem<TypeParam>::Part> parts;
        for (int32_t slot = 0; slot < kSlots; ++slot) {
          const int64_t rows = std::min<int64_t>(kTokens - done[slot], 1 + (step_idx * 4 + slot * 5) % kChunkMax);
          if (rows > 0 && step_idx >= slot) parts.push_back({slot, done[slot], static_cast<int32_t>(rows)});
        }
        const std::vector<TypeParam> out = problem.Run(parts, 2);
        const TypeParam* row = out.data();
        for (const auto& part : parts) {
          for (int64_t position = part.start_pos; position < part.start_pos + part.num_rows; ++position, row += kHeads * kHeadDim)
            problem.ExpectTwin(part.slot, position, row);
          done[part.slot] += part.num_rows;
        }
      }
    });
  });
}

TYPED_TEST(SparseAttentionTest, RoundedProbabilitiesMatchTheTwin) {
  const Problem<TypeParam> problem(true, Mode::kSelected, true);
  for (int64_t position = 0; position < kTokens; ++position) problem.ExpectTwin(0, position, problem.Run({{0, position, 1}}, 1).data());
}

// One row's heads, or two rows' heads, over more workers than rows; and rows over workers.
TYPED_TEST(SparseAttentionTest, WorkersAndChunksChangeNoBit) {
  ForEachMode([](bool v41, Mode mode) {
    const Problem<TypeParam> problem(v41, mode);
    for (int64_t position = 0; position + 2 <= kTokens; position += 2) {
      const std::vector<TypeParam> whole = problem.Run({{0, position, 2}, {1, position, 2}}, 1);
      for (int workers = 2; workers <= 9; ++workers)
        ASSERT_TRUE(SameBits(problem.Run({{0, position, 2}, {1, position, 2}}, workers), whole));
      std::vector<TypeParam> single;
      for (int32_t slot = 0; slot < kSlots; ++slot)
        for (int64_t i = 0; i < 2; ++i) {
          const std::vector<TypeParam> row = problem.Run({{slot, position + i, 1}}, static_cast<int>(1 + position % 7));
          single.insert(single.end(), row.begin(), row.end());
        }
      ASSERT_TRUE(SameBits(single, whole)) << position;
    }
  });
}

}  // namespace
}  // namespace tessera
