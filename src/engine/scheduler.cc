#include "engine/scheduler.h"

#include <algorithm>

namespace tessera {

std::vector<ScheduledChunk> ScheduleStep(std::span<const SchedulerSequence> sequences, const SchedulerLimits& limits) {
  std::vector<ScheduledChunk> chunks;
  int32_t rows_left = limits.rows_max;
  for (size_t i = 0; i < sequences.size() && rows_left > 0; ++i) {
    if (!sequences[i].has_slot || !sequences[i].decoding) continue;
    chunks.push_back({static_cast<int32_t>(i), 1, false});
    --rows_left;
  }
  int32_t prompt_rows_left = std::min(rows_left, limits.prefill_rows);
  int32_t free_slots = limits.free_slots;
  for (size_t i = 0; i < sequences.size() && prompt_rows_left > 0; ++i) {
    const SchedulerSequence& sequence = sequences[i];
    if (sequence.decoding) continue;
    const bool admit = !sequence.has_slot;
    if (admit && free_slots == 0) break;  // first come, first served: nobody overtakes
    free_slots -= admit ? 1 : 0;
    const int32_t rows = static_cast<int32_t>(std::min<int64_t>(sequence.pending_tokens, prompt_rows_left));
    chunks.push_back({static_cast<int32_t>(i), rows, admit});
    prompt_rows_left -= rows;
  }
  return chunks;
}

}  // namespace tessera
