#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

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

std::vector<int32_t> RowsOf(const std::vector<ScheduledChunk>& chunks) {
  std::vector<int32_t> rows;
  for (const ScheduledChunk& chunk : chunks) rows.push_back(chunk.num_rows);
  return rows;
}

TEST(SchedulerTest, TheOldestPromptGetsHalfTheRowsAndTheOthersShareTheRest) {
  const SchedulerLimits limits = {512, 512, 4};
  EXPECT_EQ(RowsOf(ScheduleStep(std::vector<SchedulerSequence>{{9000, true}, {9000, true}, {9000, true}}, limits)),
            (std::vector<int32_t>{256, 128, 128}));
  // What a short prompt does not need goes to the others, the oldest first.
  EXPECT_EQ(RowsOf(ScheduleStep(std::vector<SchedulerSequence>{{9000, true}, {10, true}, {20, true}}, limits)),
            (std::vector<int32_t>{482, 10, 20}));
  EXPECT_EQ(RowsOf(ScheduleStep(std::vector<SchedulerSequence>{{10, true}, {9000, true}}, limits)), (std::vector<int32_t>{10, 502}));
  EXPECT_EQ(RowsOf(ScheduleStep(std::vector<SchedulerSequence>{{9000, true}}, limits)), (std::vector<int32_t>{512}));
  // Of the rows of one step the younger prompts may get none: the oldest moves.
  EXPECT_EQ(RowsOf(ScheduleStep(std::vector<SchedulerSequence>{{9, true}, {9, true}, {9, true}}, {8, 1, 0})), (std::vector<int32_t>{1}));
}

TEST(SchedulerTest, NobodyOvertakesAQueuedSequence) {
  const std::vector<SchedulerSequence> sequences = {{10, false, false}, {10, false, false}, {10, false, false}};
  const std::vector<ScheduledChunk> chunks = ScheduleStep(sequences, {512, 512, 2});
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].sequence_idx, 0);
  EXPECT_EQ(chunks[1].sequence_idx, 1);
  EXPECT_TRUE(chunks[0].admit && chunks[1].admit);
}

TEST(SchedulerTest, BytesAreReservedForTheWholeSequenceAndASmallOneWaitsBehindALargeOne) {
  const std::vector<SchedulerSequence> sequences = {{1, true, true, 60}, {10, false, false, 50}, {10, false, false, 1}};
  EXPECT_EQ(ScheduleStep(sequences, {512, 512, 3, 40}).size(), 1u);
  EXPECT_EQ(ScheduleStep(sequences, {512, 512, 3, 50}).size(), 2u);
  EXPECT_EQ(ScheduleStep(sequences, {512, 512, 3, 51}).size(), 3u);
  // A sequence without rows is not admitted either.
  const std::vector<SchedulerSequence> queued = {{10, false, false, 1}, {10, false, false, 1}};
  EXPECT_EQ(ScheduleStep(queued, {8, 1, 2, 10}).size(), 1u);
}

TEST(SchedulerDeathTest, RefusesMoreDecodingSequencesThanRows) {
  const std::vector<SchedulerSequence> sequences = {{1, true, true}, {1, true, true}};
  EXPECT_DEATH(ScheduleStep(sequences, {1, 1, 0}), "2 sequences are decoding, a step has 1 rows");
}

// A trace of random arrivals, lengths, cancels and deadlines on one scheduler.
class Trace {
 public:
  explicit Trace(uint64_t seed) : seed_(seed) {
    slots_ = static_cast<int32_t>(1 + Draw(9));
    limits_.prefill_rows = static_cast<int32_t>(1 + Draw(40));
    limits_.rows_max = std::max(limits_.prefill_rows, slots_ - 1 + (limits_.prefill_rows + 1) / 2);
    limits_.free_slots = slots_;
    budget_ = limits_.free_bytes = Draw(2) == 0 ? 400 : 4000;
    arrivals_ = 40;
    arrival_gap_ = 1 + Draw(30);
  }

  void Run() {
    for (; arrivals_ > 0 || !sequences_.empty(); ++step_) {
      ASSERT_LT(step_, 20000) << "seed " << seed_;
      EndSome();
      if (arrivals_ > 0 && Draw(arrival_gap_) == 0) Arrive();
      std::vector<SchedulerSequence> views;
      for (const Item& item : sequences_) views.push_back(item.view);
      const std::vector<ScheduledChunk> chunks = ScheduleStep(views, limits_);
      ASSERT_EQ(chunks.empty(), views.empty()) << "seed " << seed_;
      ASSERT_NO_FATAL_FAILURE(CheckChunks(chunks));
      ASSERT_NO_FATAL_FAILURE(Advance(chunks));
    }
    EXPECT_EQ(limits_.free_slots, slots_);
    EXPECT_EQ(limits_.free_bytes, budget_);
    EXPECT_EQ(num_ended_, 40);
    EXPECT_TRUE(std::is_sorted(admitted_.begin(), admitted_.end())) << "admission in order of arrival, seed " << seed_;
  }
  int64_t num_waited() const { return num_waited_; }

 private:
  struct Item {
    int64_t arrival_idx = 0;
    int64_t to_decode = 0;
    int64_t end_step = INT64_MAX;  // cancelled or overdue then
    int64_t wait_until = 0;        // by this step it has been admitted
    SchedulerSequence view;
  };

  int64_t Draw(int64_t below) { return static_cast<int64_t>(UniformDouble(seed_, 1, counter_++) * static_cast<double>(below)); }

  // Steps that a sequence takes at most while it is the oldest: a prompt gets half of the rows that are left to prompts, and those are half
  // of prefill_rows whatever is decoding; then it decodes a token a step.
  int64_t StepsAsOldest(const Item& item) const {
    const int64_t prompt_rows = std::max<int64_t>(1, (limits_.prefill_rows + 3) / 4);
    return (item.view.decoding ? 0 : (item.view.rows_wanted + prompt_rows - 1) / prompt_rows) + item.to_decode + 1;
  }

  void Arrive() {
    Item item;
    item.arrival_idx = 40 - arrivals_--;
    item.view.rows_wanted = 1 + (Draw(5) == 0 ? Draw(400) : Draw(60));
    item.to_decode = Draw(50);
    item.view.state_bytes = 1 + Draw(std::min<int64_t>(400, item.view.rows_wanted + item.to_decode + 20));
    if (Draw(6) == 0) item.end_step = step_ + Draw(120);
    // As long as it waits the oldest sequence advances, and when it is the oldest itself, slots and bytes are free.
    item.wait_until = step_;
    for (const Item& earlier : sequences_) item.wait_until += StepsAsOldest(earlier);
    sequences_.push_back(item);
  }

  void EndSome() {
    for (size_t i = sequences_.size(); i-- > 0;)
      if (sequences_[i].end_step <= step_) End(i);
  }

  void End(size_t idx) {
    const SchedulerSequence& view = sequences_[idx].view;
    if (view.has_slot) {
      ++limits_.free_slots;
      limits_.free_bytes += view.state_bytes;
    }
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(idx));
    ++num_ended_;
  }

  void CheckChunks(const std::vector<ScheduledChunk>& chunks) {
    int32_t rows = 0, prompt_rows = 0, num_decoding = 0;
    std::vector<bool> scheduled(sequences_.size());
    std::optional<size_t> oldest_prompt;
    for (const ScheduledChunk& chunk : chunks) {
      const auto idx = static_cast<size_t>(chunk.sequence_idx);
      ASSERT_FALSE(scheduled[idx]);
      scheduled[idx] = true;
      ASSERT_GE(chunk.num_rows, 1);
      ASSERT_LE(chunk.num_rows, sequences_[idx].view.rows_wanted);
      ASSERT_EQ(chunk.admit, !sequences_[idx].view.has_slot);
      rows += chunk.num_rows;
      if (sequences_[idx].view.decoding) {
        ++num_decoding;
      } else {
        prompt_rows += chunk.num_rows;
        if (!oldest_prompt) oldest_prompt = idx;
      }
    }
    ASSERT_LE(rows, limits_.rows_max);
    ASSERT_LE(prompt_rows, limits_.prefill_rows);
    for (size_t i = 0; i < sequences_.size(); ++i) {
      ASSERT_TRUE(scheduled[i] || !sequences_[i].view.decoding) << "a stream stalls, seed " << seed_;
      if (sequences_[i].view.has_slot && !sequences_[i].view.decoding) {
        ASSERT_TRUE(oldest_prompt && *oldest_prompt <= i) << "the oldest prompt stalls, seed " << seed_;
        break;
      }
    }
  }

  void Advance(const std::vector<ScheduledChunk>& chunks) {
    std::vector<size_t> finished;
    for (const ScheduledChunk& chunk : chunks) {
      Item& item = sequences_[static_cast<size_t>(chunk.sequence_idx)];
      if (chunk.admit) {
        item.view.has_slot = true;
        ASSERT_GE(--limits_.free_slots, 0);
        ASSERT_GE(limits_.free_bytes -= item.view.state_bytes, 0);
        ASSERT_LE(step_, item.wait_until) << "seed " << seed_ << " arrival " << item.arrival_idx;
        admitted_.push_back(item.arrival_idx);
        num_waited_ += step_ < item.wait_until;
      }
      item.view.rows_wanted -= chunk.num_rows;
      if (item.view.rows_wanted > 0) continue;
      item.view.decoding = true;
      item.view.rows_wanted = 1;
      if (item.to_decode-- == 0) finished.push_back(static_cast<size_t>(chunk.sequence_idx));
    }
    std::sort(finished.rbegin(), finished.rend());
    for (const size_t idx : finished) End(idx);
  }

  uint64_t seed_, counter_ = 0;
  int32_t slots_ = 0;
  SchedulerLimits limits_;
  int64_t budget_ = 0, arrivals_ = 0, arrival_gap_ = 1, step_ = 0, num_ended_ = 0, num_waited_ = 0;
  std::vector<Item> sequences_;
  std::vector<int64_t> admitted_;  // arrival indices
};

// Rows stay within the limits, every stream advances in every step, the oldest prompt too, admission is in order of arrival and within a
// bound of steps, whatever is admitted ends, and slots and bytes are back at the end.
TEST(SchedulerTest, RandomTracesFinishWithinTheirBounds) {
  int64_t num_waited = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Trace trace(seed);
    ASSERT_NO_FATAL_FAILURE(trace.Run());
    num_waited += trace.num_waited();
  }
  EXPECT_GT(num_waited, 3000);  // the traces do queue
}

}  // namespace
}  // namespace tessera
