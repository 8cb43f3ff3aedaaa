// Puts a sequence in the middle of a long text without running the text: random but valid rows in every cache, as `tessera bench --context`
// needs them. The codes are uniform (no NaN code, no E8M0 255) and the scales give vectors of about unit size, so that selections, softmax
// and pooling do what they do on real text and every logit is finite.
#pragma once

#include <cstdint>

#include "attention/kv_cache.h"
#include "model/config.h"
#include "model/model.h"

namespace tessera {

// Fills what a sequence of `num_tokens` tokens keeps in `slot`. The bytes are a function of (seed, slot, cache, row) alone. `cache` holds
// the layouts of CacheLayouts(config, numerics, ...). Aborts when the slot holds fewer tokens.
void FillContext(KvCache& cache, const ModelConfig& config, Numerics numerics, int32_t slot, int64_t num_tokens, uint64_t seed);

}  // namespace tessera
