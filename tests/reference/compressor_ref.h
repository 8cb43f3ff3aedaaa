// Twin of attention/compressor.h: every entry of a whole sequence pooled from its token vectors at hand, no steps and no ring, in double.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/compress_ref.h"

namespace tessera::reference {

struct SequenceInputs {
  int64_t num_tokens = 0;
  std::vector<float> values, logits;  // [num_tokens, vector width]
};

// Entries [num_tokens / ratio][width] (spec/model.md sections 5.3, 5.4, 6.3). With overlap the vectors are 2 * width wide: the window
// before an entry gives its lower halves, the entry's own window the upper ones.
inline std::vector<std::vector<PooledValue>> PoolSequence(const SequenceInputs& sequence, int ratio, bool overlap, int64_t width) {
  const int64_t stride = overlap ? 2 * width : width;
  std::vector<std::vector<PooledValue>> entries;
  for (int64_t entry = 0; (entry + 1) * ratio <= sequence.num_tokens; ++entry) {
    std::vector<PooledValue> pooled;
    for (int64_t channel = 0; channel < width; ++channel) {
      std::vector<double> values, logits;
      const auto add = [&](int64_t token, int64_t column) {
        values.push_back(sequence.values[static_cast<size_t>(token * stride + column)]);
        logits.push_back(sequence.logits[static_cast<size_t>(token * stride + column)]);
      };
      if (overlap && entry > 0)
        for (int64_t token = (entry - 1) * ratio; token < entry * ratio; ++token) add(token, channel);
      for (int64_t token = entry * ratio; token < (entry + 1) * ratio; ++token) add(token, overlap ? width + channel : channel);
      pooled.push_back(Pool(values, logits));
    }
    entries.push_back(std::move(pooled));
  }
  return entries;
}

}  // namespace tessera::reference
