#include "core/step.h"

#include <algorithm>

#include "core/check.h"

namespace tessera {

Step Step::Allocate(Arena& arena, int32_t max_rows, int32_t padding_slot) {
  Step step;
  step.max_rows = max_rows;
  step.padding_slot = padding_slot;
  step.token_id = arena.Allocate<int32_t>(max_rows);
  step.position = arena.Allocate<int64_t>(max_rows);
  step.slot = arena.Allocate<int32_t>(max_rows);
  step.valid = arena.Allocate<uint8_t>(max_rows);
  step.depth = arena.Allocate<int32_t>(max_rows);
  step.row_failed = arena.Allocate<uint8_t>(max_rows);
  step.logit_row = arena.Allocate<int32_t>(max_rows);
  step.segments = arena.Allocate<Segment>(max_rows);
  return step;
}

void Step::Clear() {
  num_rows = num_segments = num_logit_rows = 0;
  ResetDerived();
}

void Step::ResetDerived() {
  std::fill_n(row_failed, max_rows, uint8_t{0});
  while (num_segments > 0 && segments[num_segments - 1].slot == padding_slot) num_rows -= segments[--num_segments].num_rows;
}

void Step::AddSegment(int32_t slot_idx, int64_t start_pos, const int32_t* token_ids, int32_t count, int32_t num_logits) {
  TSR_CHECK(count >= 1 && num_rows + count <= max_rows, "{} rows in the step, {} more, {} at most", num_rows, count, max_rows);
  TSR_CHECK(num_logits >= 0 && num_logits <= count, "{} logit rows of {}", num_logits, count);
  segments[num_segments++] = {slot_idx, num_rows, count, start_pos};
  for (int32_t i = 0; i < count; ++i) {
    const int32_t row = num_rows + i;
    token_id[row] = token_ids[i];
    position[row] = start_pos + i;
    slot[row] = slot_idx;
    valid[row] = 1;
    depth[row] = kFullDepth;
    if (i >= count - num_logits) logit_row[num_logit_rows++] = row;
  }
  num_rows += count;
}

void Step::Pad(int32_t bucket_rows, bool run) {
  TSR_CHECK(bucket_rows >= num_rows && bucket_rows <= max_rows, "bucket of {} rows for {}", bucket_rows, num_rows);
  for (int32_t row = num_rows; row < bucket_rows; ++row) {
    token_id[row] = 0;
    position[row] = row - num_rows;
    slot[row] = padding_slot;
    valid[row] = 0;
    depth[row] = kFullDepth;
  }
  if (run && bucket_rows > num_rows) {
    segments[num_segments++] = {padding_slot, num_rows, bucket_rows - num_rows, 0};
    num_rows = bucket_rows;
  }
}

}  // namespace tessera
