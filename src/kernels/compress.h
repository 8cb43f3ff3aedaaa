// Pooling of token vectors into a compressed KV entry (spec/model.md sections 5.3, 5.4 and 6.3): per channel, softmax over the slots of
// the logits g, weighted sum of the values u.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace tessera {

// e[c] = sum_i softmax_i(g[i][c]) * u[i][c] for c < cols, slots in the order given; fp32 throughout; e is rounded to T (a rounding point).
// u, g: [num_slots] pointers to rows of at least `cols` floats; num_slots >= 1.
template <class T>
void PoolEntry(const float* const* u, const float* const* g, int64_t num_slots, int64_t cols, T* e) noexcept;

}  // namespace tessera
