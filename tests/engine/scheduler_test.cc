#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace tessera {
namespace {

TEST(SchedulerTest, DecodingSequencesGetTheirRowBesideALongPrompt) {
  const std::vector<SchedulerSequence> sequences = {{1, true, true}, {1000, true, false}, {1, true, true}};
  const std::vector<ScheduledChunk> chunks = ScheduleStep(sequences, {64, 64, 0});
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[0].sequence_idx, 0);
  EXPECT_EQ(chunks[1].sequence_idx, 2);
  EXPECT_EQ(chunks[2].sequence_idx, 1);
  EXPECT_EQ(chunks[2].num_rows, 62);
}

TEST(SchedulerTest, NobodyOvertakesAQueuedSequence) {
  const std::vector<SchedulerSequence> sequences = {{10, false, false}, {10, false, false}, {10, false, false}};
  const std::vector<ScheduledChunk> chunks = ScheduleStep(sequences, {512, 512, 2});
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].sequence_idx, 0);
  EXPECT_EQ(chunks[1].sequence_idx, 1);
  EXPECT_TRUE(chunks[0].admit && chunks[1].admit);
}

// Random arrivals run to their end: no step is empty while work is there, rows never exceed the limits, and the oldest prompt always moves.
TEST(SchedulerTest, RandomTracesFinish) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    uint64_t counter = 0;
    const auto draw = [&](int64_t below) { return static_cast<int64_t>(UniformDouble(seed, 1, counter++) * static_cast<double>(below)); };
    const int32_t slots = static_cast<int32_t>(1 + draw(6));
    const int32_t prefill = static_cast<int32_t>(1 + draw(40));
    const int32_t rows_max = std::max(slots, prefill);
    std::vector<SchedulerSequence> sequences;
    std::vector<int64_t> to_decode;
    int32_t free_slots = slots;
    int64_t arrivals = 30;
    for (int64_t step = 0; arrivals > 0 || !sequences.empty(); ++step) {
      ASSERT_LT(step, 20000) << "seed " << seed;
      if (arrivals > 0 && draw(3) == 0) {
        sequences.push_back({1 + draw(100), false, false});
        to_decode.push_back(draw(50));
        --arrivals;
      }
      const std::vector<ScheduledChunk> chunks = ScheduleStep(sequences, {rows_max, prefill, free_slots});
      ASSERT_EQ(chunks.empty(), sequences.empty());
      int32_t rows = 0, prompt_rows = 0;
      std::vector<bool> finished(sequences.size());
      for (const ScheduledChunk& chunk : chunks) {
        SchedulerSequence& sequence = sequences[static_cast<size_t>(chunk.sequence_idx)];
        rows += chunk.num_rows;
        if (!sequence.decoding) prompt_rows += chunk.num_rows;
        ASSERT_EQ(chunk.admit, !sequence.has_slot);
        if (chunk.admit) {
          sequence.has_slot = true;
          ASSERT_GE(--free_slots, 0);
        }
        sequence.pending_tokens -= chunk.num_rows;
        ASSERT_GE(sequence.pending_tokens, 0);
        if (sequence.pending_tokens > 0) continue;
        sequence.decoding = true;
        sequence.pending_tokens = 1;
        if (to_decode[static_cast<size_t>(chunk.sequence_idx)]-- == 0) finished[static_cast<size_t>(chunk.sequence_idx)] = true;
      }
      ASSERT_LE(rows, rows_max);
      ASSERT_LE(prompt_rows, prefill);
      for (size_t i = sequences.size(); i-- > 0;) {
        if (!finished[i]) continue;
        ++free_slots;
        sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(i));
        to_decode.erase(to_decode.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    EXPECT_EQ(free_slots, slots);
  }
}

}  // namespace
}  // namespace tessera
