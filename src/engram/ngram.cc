#include "engram/ngram.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "engram/numpy_random.h"
#include "kernels/ngram_hash.h"

namespace tessera {
namespace {

constexpr int64_t kHeadsMax = 1024;
constexpr int64_t kTableVocabMax = int64_t{1} << 40;       // trial division up to its root stays far below a second
constexpr int64_t kCompressedVocabMax = int64_t{1} << 29;  // keeps the multipliers' range above 2^32 (NumpyGenerator::NextBelow)
constexpr int64_t kSeedFactor = 10007;

void CheckRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) Fail("config: {} is {}, wants {} to {}", field, value, low, high);
}

bool IsPrime(int64_t n) {
  if (n < 4) return n >= 2;
  if (n % 2 == 0) return false;
  for (int64_t d = 3; d * d <= n; d += 2)
    if (n % d == 0) return false;
  return true;
}

// Odd, and so small that id * multiplier stays below 2^63 for every compressed id.
std::vector<int64_t> DrawMultipliers(int64_t layer_id, const EngramHashConfig& config) {
  const int64_t bound = std::max<int64_t>(1, std::numeric_limits<int64_t>::max() / config.compressed_vocab_size / 2);
  NumpyGenerator generator(static_cast<uint64_t>(kSeedFactor * layer_id));
  std::vector<int64_t> multipliers(static_cast<size_t>(config.max_ngram_size));
  for (int64_t& m : multipliers) m = static_cast<int64_t>(generator.NextBelow(static_cast<uint64_t>(bound))) * 2 + 1;
  return multipliers;
}

}  // namespace

std::vector<EngramLayerHash> EngramHashes(const EngramHashConfig& config) {
  CheckRange("engram_max_ngram_size", config.max_ngram_size, 2, kNgramSizeMax);
  CheckRange("engram_n_heads", config.n_heads, 1, kHeadsMax);
  CheckRange("engram_vocab_size", config.engram_vocab_size, 2, kTableVocabMax);
  CheckRange("engram_compressed_vocab_size", config.compressed_vocab_size, 1, kCompressedVocabMax);
  std::vector<EngramLayerHash> layers;
  int64_t candidate = config.engram_vocab_size;
  for (int64_t layer_id : config.layer_ids) {
    CheckRange("engram_layer_ids", layer_id, 0, std::numeric_limits<int32_t>::max());
    EngramLayerHash layer;
    layer.multipliers = DrawMultipliers(layer_id, config);
    for (int column = 0; column < (config.max_ngram_size - 1) * config.n_heads; ++column) {
      while (!IsPrime(candidate)) ++candidate;
      layer.offsets.push_back(layer.table_rows);
      layer.primes.push_back(candidate);
      layer.table_rows += candidate++;
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace tessera
