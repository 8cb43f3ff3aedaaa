#include "engram/numpy_random.h"

#include <array>

#include "core/check.h"

namespace tessera {
namespace {

using Uint128 = unsigned __int128;

constexpr size_t kPoolWords = 4;
constexpr Uint128 kPcgMultiplier = (Uint128{2549297995355413924u} << 64) | 4865540595714422341u;

// SeedSequence's hash: the constant changes with every word that goes through it.
class WordHash {
 public:
  WordHash(uint32_t constant, uint32_t multiplier) : constant_(constant), multiplier_(multiplier) {}
  uint32_t operator()(uint32_t word) {
    word ^= constant_;
    constant_ *= multiplier_;
    word *= constant_;
    return word ^ (word >> 16);
  }

 private:
  uint32_t constant_, multiplier_;
};

uint32_t Mix(uint32_t x, uint32_t y) {
  const uint32_t mixed = 0xca01f9ddu * x - 0x4973f715u * y;
  return mixed ^ (mixed >> 16);
}

// SeedSequence(seed).generate_state(4, uint64).
std::array<uint64_t, 4> SeedState(uint64_t seed) {
  const std::array<uint32_t, kPoolWords> entropy = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
  std::array<uint32_t, kPoolWords> pool;
  WordHash in(0x43b0d7e5u, 0x931e8875u);
  for (size_t i = 0; i < kPoolWords; ++i) pool[i] = in(entropy[i]);
  for (size_t source = 0; source < kPoolWords; ++source)
    for (size_t target = 0; target < kPoolWords; ++target)
      if (source != target) pool[target] = Mix(pool[target], in(pool[source]));

  std::array<uint64_t, 4> state;
  WordHash out(0x8b51f9ddu, 0x58f38dedu);
  for (size_t i = 0; i < state.size(); ++i) {
    const uint64_t low = out(pool[2 * i % kPoolWords]);
    const uint64_t high = out(pool[(2 * i + 1) % kPoolWords]);
    state[i] = low | (high << 32);
  }
  return state;
}

}  // namespace

NumpyGenerator::NumpyGenerator(uint64_t seed) {
  const std::array<uint64_t, 4> words = SeedState(seed);
  const Uint128 initial_state = (Uint128{words[0]} << 64) | words[1];
  const Uint128 stream = (Uint128{words[2]} << 64) | words[3];
  increment_ = (stream << 1) | 1;
  state_ = (increment_ + initial_state) * kPcgMultiplier + increment_;
}

uint64_t NumpyGenerator::Next() {
  state_ = state_ * kPcgMultiplier + increment_;
  const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);  // XSL-RR: fold, then rotate by the top bits
  const unsigned rotation = static_cast<unsigned>(state_ >> 122);
  return (folded >> rotation) | (folded << (-rotation & 63u));
}

// Lemire's method: the high word of a product is uniform once the few low words that would favour some values are drawn again.
uint64_t NumpyGenerator::NextBelow(uint64_t bound) {
  TSR_CHECK(bound > (uint64_t{1} << 32), "bound {} would need numpy's 32-bit draws", bound);
  const uint64_t rejected_below = -bound % bound;  // 2^64 mod bound
  Uint128 product = Uint128{Next()} * bound;
  while (static_cast<uint64_t>(product) < rejected_below) product = Uint128{Next()} * bound;
  return static_cast<uint64_t>(product >> 64);
}

}  // namespace tessera
