// The part of numpy's default_rng that Engram's constants were drawn with: SeedSequence, PCG64 and bounded 64-bit integers, bit for bit.
// Models store the tables but not the multipliers, so a reader has to draw them again.
#pragma once

#include <cstdint>

namespace tessera {

class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint64_t seed);  // numpy.random.default_rng(seed)

  uint64_t Next();  // 64 random bits
  // One value of integers(0, bound, dtype=int64). bound > 2^32: below that numpy switches to 32-bit draws, which nothing here needs.
  uint64_t NextBelow(uint64_t bound);

 private:
  unsigned __int128 state_ = 0;
  unsigned __int128 increment_ = 0;
};

}  // namespace tessera
