// A step in data: rows (one token of one sequence at one position each) grouped into segments (consecutive rows of one sequence). Decode is
// a segment of one row, a prompt chunk is a segment of many. The arrays are allocated once for the largest bucket; everything that changes
// between steps is written into them, so a plan that was built over their addresses can be replayed.
#pragma once

#include <cstdint>

#include "core/arena.h"
#include "core/row_list.h"

namespace tessera {

struct Segment {
  int32_t slot = 0;  // caches of the sequence
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int64_t start_pos = 0;  // position of the first row: tokens of the sequence already processed
};

constexpr int32_t kFullDepth = INT32_MAX;

struct Step {
  // Steps since the first, this one included: what the collectives of its replay carry as tag, so that a rank that left one out is found.
  int64_t number = 0;
  int32_t max_rows = 0;
  int32_t padding_slot = 0;  // caches that rows beyond the real ones write to

  int32_t num_rows = 0;  // rows that kernels run: the real ones, or a whole bucket when padding is run too
  int32_t num_segments = 0;
  int32_t num_logit_rows = 0;
  int32_t bucket_idx = 0;  // of the plan to replay: decided with the rest of the step, so that every rank replays the same

  int32_t* token_id = nullptr;    // [max_rows]
  int64_t* position = nullptr;    // [max_rows]
  int32_t* slot = nullptr;        // [max_rows]
  uint8_t* valid = nullptr;       // [max_rows] 0 on padding rows
  int32_t* depth = nullptr;       // [max_rows] layers the row passes in full (model/encoder_shortcut.h); kFullDepth: all
  uint8_t* row_failed = nullptr;  // [max_rows] set by a replay when the row's request must fail (a scale byte 255 in a table row)
  int32_t* logit_row = nullptr;   // [max_rows] rows that want logits, ascending; output row i belongs to row logit_row[i]
  Segment* segments = nullptr;    // [max_rows]

  static Step Allocate(Arena& arena, int32_t max_rows, int32_t padding_slot);

  // Rows that kernels run, and those that want logits.
  RowList AllRows() const { return {nullptr, &num_rows}; }
  RowList LogitRows() const { return {logit_row, &num_logit_rows}; }

  // Empties the step.
  void Clear();
  // Takes back what an earlier replay of this step derived or appended (padding segments, failed rows), so that replaying it again starts
  // from the same data.
  void ResetDerived();
  // Appends a segment of `num_rows` tokens of the sequence in `slot`, the first at `start_pos`. Aborts when the step is full.
  // Logits are wanted for the last `num_logits` of them. Every row passes all layers unless its depth is lowered afterwards.
  void AddSegment(int32_t slot, int64_t start_pos, const int32_t* token_ids, int32_t num_rows, int32_t num_logits);
  // Fills rows [num_rows, bucket_rows) with padding: one segment on the padding slot, valid = 0, no logits. When `run` is set kernels
  // process them like any other row, otherwise they stop at the real ones.
  void Pad(int32_t bucket_rows, bool run);
};

}  // namespace tessera
