// What the next step holds, as a pure function of the sequences and the limits.
//
// * Every sequence that is decoding gets its row, in every step: a running stream never waits for a prompt or for another stream.
// * Prompts share the rows that are left, at most `prefill_rows`. The oldest prompt gets half of them, the others equal shares of the rest,
//   and what one does not need goes to the others, the oldest first: a short prompt behind a very long one starts soon, and the long one
//   never gets less than half. With rows_max >= slots - 1 + (prefill_rows + 1) / 2, which StepRunner's largest bucket has, the oldest
//   prompt advances by a quarter of prefill_rows in every step, or by all it wants, whatever is decoding.
// * Waiting sequences are admitted in order of arrival, when a slot and the bytes of their whole state are free. The first of the queue is
//   never overtaken, so nothing starves: whoever holds bytes ends, and a sequence that could not run alone was refused at the door.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera {

struct SchedulerSequence {
  int64_t rows_wanted = 0;     // rows its next chunk may take, at least 1: what is pending, cut where a snapshot must be taken
  bool has_slot = false;       // false: waits for admission
  bool decoding = false;       // its prompt is processed; rows_wanted is 1
  int64_t state_bytes = 0;     // caches it may fill by its end, reserved when it is admitted
};
struct SchedulerLimits {
  int32_t rows_max = 0;      // rows of the largest bucket, at least as many as there are slots
  int32_t prefill_rows = 0;  // rows of prompts a step takes
  int32_t free_slots = 0;
  int64_t free_bytes = std::numeric_limits<int64_t>::max();
};
struct ScheduledChunk {
  int32_t sequence_idx = 0;  // into the sequences given
  int32_t num_rows = 0;
  bool admit = false;  // takes one of the free slots and its state_bytes
};

// Sequences in order of arrival; those without a slot come last. The chunks are those of decoding sequences, then those of prompts, each in
// order of arrival. Never returns an empty step while a sequence could run.
std::vector<ScheduledChunk> ScheduleStep(std::span<const SchedulerSequence> sequences, const SchedulerLimits& limits);

}  // namespace tessera
