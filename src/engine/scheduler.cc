#include "engine/scheduler.h"

#include <algorithm>

#include "core/check.h"

namespace tessera {
namespace {

// Prompts that could take rows: those with a slot, then the first of the queue as long as slots and bytes last.
std::vector<ScheduledChunk> Prompts(std::span<const SchedulerSequence> sequences, SchedulerLimits limits) {
  std::vector<ScheduledChunk> prompts;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SchedulerSequence& sequence = sequences[i];
    if (sequence.decoding) continue;
    const bool admit = !sequence.has_slot;
    if (admit) {
      if (limits.free_slots == 0 || sequence.state_bytes > limits.free_bytes) break;
      --limits.free_slots;
      limits.free_bytes -= sequence.state_bytes;
    }
    prompts.push_back({static_cast<int32_t>(i), 0, admit});
  }
  return prompts;
}

// Divides `rows` among the prompts as the header says.
void ShareRows(std::span<const SchedulerSequence> sequences, int32_t rows, std::vector<ScheduledChunk>& prompts) {
  const auto grant = [&](ScheduledChunk& chunk, int32_t rows_max) {
    const int64_t wanted = sequences[static_cast<size_t>(chunk.sequence_idx)].rows_wanted - chunk.num_rows;
    const auto granted = static_cast<int32_t>(std::min<int64_t>(wanted, rows_max));
    chunk.num_rows += granted;
    rows -= granted;
  };
  const auto num_prompts = static_cast<int32_t>(prompts.size());
  for (int32_t i = 0; i < num_prompts; ++i) {
    const int32_t num_sharing = i == 0 ? std::min(num_prompts, 2) : num_prompts - i;
    grant(prompts[static_cast<size_t>(i)], (rows + num_sharing - 1) / num_sharing);
  }
  for (ScheduledChunk& chunk : prompts) grant(chunk, rows);
}

}  // namespace

std::vector<ScheduledChunk> ScheduleStep(std::span<const SchedulerSequence> sequences, const SchedulerLimits& limits) {
  std::vector<ScheduledChunk> chunks;
  for (size_t i = 0; i < sequences.size(); ++i)
    if (sequences[i].has_slot && sequences[i].decoding) chunks.push_back({static_cast<int32_t>(i), 1, false});
  const int32_t rows_left = limits.rows_max - static_cast<int32_t>(chunks.size());
  TSR_CHECK(rows_left >= 0, "{} sequences are decoding, a step has {} rows", chunks.size(), limits.rows_max);
  std::vector<ScheduledChunk> prompts = Prompts(sequences, limits);
  ShareRows(sequences, std::min(rows_left, limits.prefill_rows), prompts);
  for (const ScheduledChunk& chunk : prompts)
    if (chunk.num_rows > 0) chunks.push_back(chunk);
  return chunks;
}

}  // namespace tessera
