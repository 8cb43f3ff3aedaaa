// Where a sequence's state is snapshotted for the prefix cache, as pure functions of what is known when the sequence is admitted. A chunk
// of a prompt may run past a boundary by no more than what the rings of the caches still hold behind it (kSnapshotReach); the encoder
// shortcut reads the same boundaries, because the rows that a snapshot keeps must have passed every layer.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace tessera {

constexpr int64_t kSnapshotTokens = 128;   // the stride is the smallest whole number of compressed entries of every layer from here on
constexpr int64_t kSnapshotPeriod = 4096;  // and a long text leaves a snapshot this often
// Tokens that may be processed beyond a boundary before its snapshot is taken: with the stride of every released model, the last boundary
// before the end of a prompt needs no chunk of its own.
constexpr int32_t kSnapshotReach = 128;

struct Boundaries {
  int64_t num_prompt = 0;
  int64_t stride = 0;  // SnapshotStride of the model; 0: no snapshots are taken, the prompt's end is the only boundary
  int64_t branch = 0;  // where an earlier prompt parted from this one, a multiple of stride; 0: nowhere
};

// Tokens between possible boundaries inside a text: no compressor has pending rows at a multiple of it.
int64_t SnapshotStride(const ModelConfig& config);

// The first boundary after `num_processed` tokens: the end of the prompt, the last multiple of the stride before it, the branch, and every
// kSnapshotPeriod tokens (rounded up to the stride), also behind the prompt. INT64_MAX when there is none. The end of the answer is a
// boundary too, but nobody knows it in advance; it always lies behind rows that were decoded one by one.
int64_t NextBoundary(int64_t num_processed, const Boundaries& boundaries);

// How many of the next `num_rows` tokens one chunk may take, at least 1, so that the snapshot of every boundary inside it can be taken
// afterwards.
int64_t RowsWithinReach(int64_t num_processed, int64_t num_rows, const Boundaries& boundaries);

}  // namespace tessera
