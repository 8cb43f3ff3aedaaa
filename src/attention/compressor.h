// Compressed KV entries: which entries a step completes, where the token vectors they pool come from (this step's rows or the pending ring
// of the slot), and how the ring is kept (spec/model.md sections 5.3, 5.4, 6.3 and 10). The caller turns a pooled vector into a cache row.
#pragma once

#include <cstdint>

#include "attention/kv_cache.h"
#include "core/step.h"
#include "core/threads.h"
#include "core/view.h"

namespace tessera {

constexpr int kPoolSlotsMax = 256;  // tokens one entry pools, overlap included; the config check bounds compress ratios by it

struct CompressorShape {
  int ratio = 1;         // tokens per entry
  bool overlap = false;  // V4 CSA: an entry also pools the window before it, lower halves of the vectors there, upper halves here
  int64_t width = 0;     // channels of an entry

  int64_t vector_width() const { return overlap ? 2 * width : width; }
  int64_t pending_tokens() const { return overlap ? 2 * ratio : ratio; }                     // rows of the ring
  int64_t pending_row_bytes() const { return 2 * vector_width() * int64_t{sizeof(float)}; }  // values, then logits
};

// An entry that a step completes.
struct CompletedEntry {
  const Segment* segment = nullptr;
  int64_t entry_idx = 0;  // covers tokens [entry_idx * ratio, (entry_idx + 1) * ratio)
};
// Entries completed by the step's segments together; entries are numbered segment after segment.
int64_t NumCompletedEntries(const Step& step, int ratio) noexcept;
CompletedEntry FindCompletedEntry(const Step& step, int ratio, int64_t completed_idx) noexcept;

// This step's compressor inputs, row by row: values u and logits g (position bias already added) [num_rows, vector_width].
struct CompressorInputs {
  View<const float> values;
  View<const float> logits;
};

// Pools one entry into e [width], rounded to T.
template <class T>
void PoolCompletedEntry(const CompressorShape& shape, const CompressorInputs& inputs, const RowStore& pending, const CompletedEntry& entry,
                        T* e) noexcept;

// Writes the step's last tokens of every segment into the pending ring. Only after every entry of the step was pooled.
void KeepPending(const CompressorShape& shape, const CompressorInputs& inputs, const RowStore& pending, const Step& step,
                 Range segments) noexcept;

}  // namespace tessera
