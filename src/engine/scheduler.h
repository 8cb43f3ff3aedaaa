// What the next step holds, as a pure function of the sequences and the limits: first one row for every sequence that is decoding, then
// chunks of prompts in order of arrival within the row budget, so that a long prompt never stalls running streams.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

struct SchedulerSequence {
  int64_t pending_tokens = 0;  // known tokens that were not processed yet, at least 1
  bool has_slot = false;       // false: waits for admission
  bool decoding = false;       // its prompt is processed; pending_tokens is 1
};
struct SchedulerLimits {
  int32_t rows_max = 0;      // rows of the largest bucket
  int32_t prefill_rows = 0;  // rows of prompts a step takes
  int32_t free_slots = 0;
};
struct ScheduledChunk {
  int32_t sequence_idx = 0;  // into the sequences given
  int32_t num_rows = 0;
  bool admit = false;  // takes one of the free slots
};

// Sequences in order of arrival. Never returns an empty step while a sequence could run.
std::vector<ScheduledChunk> ScheduleStep(std::span<const SchedulerSequence> sequences, const SchedulerLimits& limits);

}  // namespace tessera
