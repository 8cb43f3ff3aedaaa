// Counter-based random numbers: a value is a pure function of (seed, stream, counter), so a request's tokens do not depend on its
// neighbours or on when they were drawn. Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

std::array<uint32_t, 4> Philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high);

// Uniform in [0, 1) with 53 random bits.
double UniformDouble(uint64_t seed, uint64_t stream, uint64_t counter);

}  // namespace tessera
