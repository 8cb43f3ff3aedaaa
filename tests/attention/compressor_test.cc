#include "attention/compressor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "reference/compressor_ref.h"
#include "support/kernel_inputs.h"
#include "support/op_inputs.h"

namespace tessera {
namespace {

using reference::SequenceInputs;
using testing::kRounding;
using testing::kSubnormalUnit;
using testing::RandomValues;
using testing::SameBits;
using testing::StepRows;

constexpr int64_t kTokens = 40;
constexpr int32_t kSlots = 4;

// One kind of compressor with a ring for every slot, and the sequences that run through it.
template <class T>
class Machine {
 public:
  explicit Machine(CompressorShape shape)
      : shape_(shape),
        cache_({{0, CacheKind::kPending, shape.pending_tokens(), shape.pending_row_bytes(), shape.pending_tokens(), 1}}, kSlots) {
    pending_ = cache_.Store(0, CacheKind::kPending);
    Forget();
  }

  SequenceInputs Sequence(uint64_t seed) const {
    const int64_t count = kTokens * shape_.vector_width();
    return {kTokens, RandomValues<float>(seed, count, -3, 3), RandomValues<float>(seed + 1000, count, -8, 8)};
  }

  // Before its first token a slot holds nothing that may be read: NaN.
  void Forget() {
    entries_.clear();
    std::memset(pending_.base, 0xff, static_cast<size_t>(pending_.slot_bytes * kSlots));
  }

  struct Part {
    int32_t slot;
    const SequenceInputs* sequence;
    int64_t start_pos;
    int32_t num_rows;
  };
  // One step over the parts: pools every completed entry, then keeps what is pending, for the workers in turn.
  void Run(const std::vector<Part>& parts, int num_workers = 1) {
    StepRows rows(static_cast<int32_t>(parts.size() * kTokens));
    std::vector<float> values, logits;
    const int64_t width = shape_.vector_width();
    for (const Part& part : parts) {
      rows.Add(part.slot, part.start_pos, part.num_rows);
      const auto append = [&](const std::vector<float>& from, std::vector<float>& to) {
        to.insert(to.end(), from.begin() + part.start_pos * width, from.begin() + (part.start_pos + part.num_rows) * width);
      };
      append(part.sequence->values, values);
      append(part.sequence->logits, logits);
    }
    const Step& step = rows.step();
    const CompressorInputs inputs{MakeView<const float>(values.data(), step.num_rows, width),
                                  MakeView<const float>(logits.data(), step.num_rows, width)};
    for (int64_t i = 0; i < NumCompletedEntries(step, shape_.ratio); ++i) {
      const CompletedEntry entry = FindCompletedEntry(step, shape_.ratio, i);
      std::vector<T>& pooled = entries_[{entry.segment->slot, entry.entry_idx}];
      EXPECT_TRUE(pooled.empty()) << "entry " << entry.entry_idx << " was completed twice";
      pooled.resize(static_cast<size_t>(shape_.width));
      PoolCompletedEntry<T>(shape_, inputs, pending_, entry, pooled.data());
    }
    for (int worker = 0; worker < num_workers; ++worker)
      KeepPending(shape_, inputs, pending_, step, PartOf(step.num_segments, worker, num_workers));
  }

  void ExpectTwin(int32_t slot, const SequenceInputs& sequence) const {
    const auto expected = reference::PoolSequence(sequence, shape_.ratio, shape_.overlap, shape_.width);
    ASSERT_EQ(static_cast<int64_t>(expected.size()), kTokens / shape_.ratio);
    for (size_t entry = 0; entry < expected.size(); ++entry) {
      const std::vector<T>& pooled = Entry(slot, static_cast<int64_t>(entry));
      for (size_t channel = 0; channel < pooled.size(); ++channel) {
        const auto& [value, error] = expected[entry][channel];
        ASSERT_LE(std::fabs(ToFloat(pooled[channel]) - value), error + kRounding<T> * (std::fabs(value) + error) + kSubnormalUnit<T>)
            << "entry " << entry << " channel " << channel;
      }
    }
  }
  const std::vector<T>& Entry(int32_t slot, int64_t entry_idx) const { return entries_.at({slot, entry_idx}); }
  size_t num_entries() const { return entries_.size(); }
  // Entries [0, count) of slot `slot` have the bits that `other` has in `other_slot`.
  void ExpectSame(int32_t slot, int64_t count, const Machine& other, int32_t other_slot) const {
    for (int64_t entry = 0; entry < count; ++entry)
      ASSERT_TRUE(SameBits(Entry(slot, entry), other.Entry(other_slot, entry))) << "slot " << slot << " entry " << entry;
  }

 private:
  CompressorShape shape_;
  KvCache cache_;
  RowStore pending_;
  std::map<std::pair<int32_t, int64_t>, std::vector<T>> entries_;
};

// The overlapped ratio 4 of V4's sparse layers, a long ratio without overlap, V4.1's ratio 2, and no pooling at all.
std::vector<CompressorShape> Shapes() { return {{4, true, 5}, {8, false, 6}, {2, false, 7}, {1, false, 3}, {3, true, 2}}; }

template <class F>
void ForEachShape(const F& body) {
  for (const CompressorShape& shape : Shapes()) {
    SCOPED_TRACE(::testing::Message() << "ratio " << shape.ratio << (shape.overlap ? " with overlap" : ""));
    body(shape);
  }
}

template <class T>
void CheckOneChunkAgainstTheTwin() {
  testing::ForEachTier([] {
    ForEachShape([](const CompressorShape& shape) {
      Machine<T> machine(shape);
      const SequenceInputs sequence = machine.Sequence(1);
      machine.Run({{2, &sequence, 0, kTokens}});
      machine.ExpectTwin(2, sequence);
    });
  });
}
TEST(CompressorTest, Bf16EntriesMatchTheTwin) { CheckOneChunkAgainstTheTwin<bf16>(); }
TEST(CompressorTest, FloatEntriesMatchTheTwin) { CheckOneChunkAgainstTheTwin<float>(); }

TEST(CompressorTest, NoSplitInTwoOrThreeChangesABit) {
  ForEachShape([](const CompressorShape& shape) {
    Machine<float> whole(shape), parts(shape);
    const SequenceInputs sequence = whole.Sequence(2);
    whole.Run({{0, &sequence, 0, kTokens}});
    for (int32_t end = 1; end <= kTokens; ++end) {
      for (int32_t cut = 0; cut < end; ++cut) {
        const int32_t second_cut = cut + (end - cut) / 3;
        parts.Forget();
        for (const auto& [from, to] : {std::pair{0, cut}, {cut, second_cut}, {second_cut, end}})
          if (to > from) parts.Run({{1, &sequence, from, to - from}});
        ASSERT_EQ(parts.num_entries(), static_cast<size_t>(end / shape.ratio)) << "cut at " << cut << ", end " << end;
        parts.ExpectSame(1, end / shape.ratio, whole, 0);
      }
    }
  });
}

TEST(CompressorTest, TokenByTokenChangesNoBit) {
  ForEachShape([](const CompressorShape& shape) {
    Machine<float> whole(shape), parts(shape);
    const SequenceInputs sequence = whole.Sequence(3);
    whole.Run({{0, &sequence, 0, kTokens}});
    for (int64_t token = 0; token < kTokens; ++token) parts.Run({{3, &sequence, token, 1}});
    parts.ExpectSame(3, kTokens / shape.ratio, whole, 0);
  });
}

// Sequences of different lengths advance together by random chunks, some of them resting, divided over workers.
TEST(CompressorTest, SegmentsOfOneStepDoNotDisturbEachOther) {
  std::mt19937_64 random(4);
  ForEachShape([&](const CompressorShape& shape) {
    Machine<bf16> whole(shape), together(shape);
    std::vector<SequenceInputs> sequences;
    for (int32_t slot = 0; slot < kSlots; ++slot) sequences.push_back(whole.Sequence(10 + static_cast<uint64_t>(slot)));
    for (int32_t slot = 0; slot < kSlots; ++slot) whole.Run({{slot, &sequences[static_cast<size_t>(slot)], 0, kTokens}});
    for (int round = 0; round < 20; ++round) {
      together.Forget();
      int64_t done[kSlots] = {};
      for (bool all_done = false; !all_done;) {
        std::vector<Machine<bf16>::Part> parts;
        all_done = true;
        for (int32_t i = 0; i < kSlots; ++i) {
          const int32_t slot = (i + round) % kSlots;  // segments in any order of slots
          const int64_t rows = std::min<int64_t>(kTokens - done[slot], static_cast<int64_t>(random() % 11));
          all_done = all_done && done[slot] == kTokens;
          if (rows > 0) parts.push_back({slot, &sequences[static_cast<size_t>(slot)], done[slot], static_cast<int32_t>(rows)});
          done[slot] += rows;
        }
        if (!parts.empty()) together.Run(parts, 1 + round % 3);
      }
      for (int32_t slot = 0; slot < kSlots; ++slot) together.ExpectSame(slot, kTokens / shape.ratio, whole, slot);
    }
  });
}

TEST(CompressorTest, CompletedEntriesAreEnumeratedSegmentAfterSegment) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    StepRows rows(64);
    for (int32_t i = 0; i < 3; ++i) rows.Add(2 - i, static_cast<int64_t>(random() % 50), 1 + static_cast<int32_t>(random() % 20));
    const Step& step = rows.step();
    for (const int ratio : {1, 2, 3, 4, 8, 128}) {
      // By the definition: an entry is complete with the token that ends its window.
      std::vector<std::pair<const Segment*, int64_t>> expected;
      for (int32_t i = 0; i < step.num_segments; ++i)
        for (int64_t row = 0; row < step.segments[i].num_rows; ++row)
          if ((step.segments[i].start_pos + row) % ratio == ratio - 1)
            expected.push_back({&step.segments[i], (step.segments[i].start_pos + row) / ratio});
      ASSERT_EQ(NumCompletedEntries(step, ratio), static_cast<int64_t>(expected.size()));
      for (size_t i = 0; i < expected.size(); ++i) {
        const CompletedEntry found = FindCompletedEntry(step, ratio, static_cast<int64_t>(i));
        EXPECT_EQ(found.segment, expected[i].first);
        EXPECT_EQ(found.entry_idx, expected[i].second);
      }
      EXPECT_EQ(FindCompletedEntry(step, ratio, static_cast<int64_t>(expected.size())).segment, nullptr);
    }
  }
}

TEST(CompressorTest, AnEmptyStepCompletesNothing) {
  StepRows rows(4);
  EXPECT_EQ(NumCompletedEntries(rows.step(), 1), 0);
}

}  // namespace
}  // namespace tessera
