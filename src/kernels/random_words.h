// Many random words of one Philox stream at once: core/random.h draws a block at a time, this fills memory at several GB/s a core. Random
// checkpoints (model/synthesize.h) are made of it.
#pragma once

#include <cstdint>
#include <span>

namespace tessera {

// words[4 i ... 4 i + 3] = Philox4x32(seed, first_counter + i, stream), bit for bit on every tier. The size of `words` is a multiple of 4.
void FillRandomWords(uint64_t seed, uint64_t stream, uint64_t first_counter, std::span<uint32_t> words) noexcept;

}  // namespace tessera
