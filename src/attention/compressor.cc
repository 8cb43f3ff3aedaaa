#include "attention/compressor.h"

#include <algorithm>
#include <cstring>

#include "core/dtype.h"
#include "kernels/compress.h"

namespace tessera {

int64_t NumCompletedEntries(const Step& step, int ratio) noexcept {
  int64_t count = 0;
  for (int32_t i = 0; i < step.num_segments; ++i) {
    const Segment& segment = step.segments[i];
    count += (segment.start_pos + segment.num_rows) / ratio - segment.start_pos / ratio;
  }
  return count;
}

CompletedEntry FindCompletedEntry(const Step& step, int ratio, int64_t completed_idx) noexcept {
  for (int32_t i = 0; i < step.num_segments; ++i) {
    const Segment& segment = step.segments[i];
    const int64_t first = segment.start_pos / ratio;
    const int64_t count = (segment.start_pos + segment.num_rows) / ratio - first;
    if (completed_idx < count) return {&segment, first + completed_idx};
    completed_idx -= count;
  }
  return {};
}

template <class T>
void PoolCompletedEntry(const CompressorShape& shape, const CompressorInputs& inputs, const RowStore& pending, const CompletedEntry& entry,
                        T* e) noexcept {
  const float* values[kPoolSlotsMax];
  const float* logits[kPoolSlotsMax];
  const Segment& segment = *entry.segment;
  const int64_t begin = entry.entry_idx * shape.ratio;
  const int64_t first = shape.overlap ? std::max<int64_t>(0, begin - shape.ratio) : begin;
  int64_t num_slots = 0;
  for (int64_t token = first; token < begin + shape.ratio; ++token, ++num_slots) {
    // The upper half of a vector serves the window the token is in, the lower half the window after it.
    const int64_t half = shape.overlap && token >= begin ? shape.width : 0;
    if (token >= segment.start_pos) {
      const int64_t row = segment.first_row + token - segment.start_pos;
      values[num_slots] = inputs.values.Row(row) + half;
      logits[num_slots] = inputs.logits.Row(row) + half;
    } else {
      const float* kept = reinterpret_cast<const float*>(pending.RingRow(segment.slot, token));
      values[num_slots] = kept + half;
      logits[num_slots] = kept + shape.vector_width() + half;
    }
  }
  PoolEntry(values, logits, num_slots, shape.width, e);
}

void KeepPending(const CompressorShape& shape, const CompressorInputs& inputs, const RowStore& pending, const Step& step,
                 Range segments) noexcept {
  const size_t vector_bytes = static_cast<size_t>(shape.vector_width()) * sizeof(float);
  for (int64_t i = segments.begin; i < segments.end; ++i) {
    const Segment& segment = step.segments[i];
    const int64_t kept = std::min<int64_t>(segment.num_rows, pending.rows_per_slot);
    for (int64_t row = segment.num_rows - kept; row < segment.num_rows; ++row) {
      uint8_t* place = pending.RingRow(segment.slot, segment.start_pos + row);
      std::memcpy(place, inputs.values.Row(segment.first_row + row), vector_bytes);
      std::memcpy(place + vector_bytes, inputs.logits.Row(segment.first_row + row), vector_bytes);
    }
  }
}

template void PoolCompletedEntry<float>(const CompressorShape&, const CompressorInputs&, const RowStore&, const CompletedEntry&,
                                        float*) noexcept;
template void PoolCompletedEntry<bf16>(const CompressorShape&, const CompressorInputs&, const RowStore&, const CompletedEntry&,
                                       bf16*) noexcept;

}  // namespace tessera
