#include "kernels/random_words.h"

#include "core/check.h"
#include "kernels/tier.h"

namespace tessera {

TSR_DECLARE_TIERS(void PhiloxBlocks(uint64_t seed, uint64_t stream, uint64_t first_counter, uint32_t* words, int64_t num_blocks) noexcept;)

void FillRandomWords(uint64_t seed, uint64_t stream, uint64_t first_counter, std::span<uint32_t> words) noexcept {
  TSR_CHECK(words.size() % 4 == 0, "{} words are no whole blocks of 4", words.size());
  TSR_DISPATCH(PhiloxBlocks(seed, stream, first_counter, words.data(), static_cast<int64_t>(words.size() / 4)));
}

}  // namespace tessera
