#include "kernels/ngram_hash.h"

#include <gtest/gtest.h>

#include <random>

#include "core/json.h"
#include "reference/ngram_hash_ref.h"
#include "support/tensors.h"

namespace tessera::testing {
namespace {

NgramRefConstants FlatConstants(const Json& config, size_t layer) {
  NgramRefConstants constants;
  constants.multipliers = config["mult"][layer].get<std::vector<int64_t>>();
  for (const Json& order : config["primes"][layer])
    for (const Json& prime : order) constants.primes.push_back(prime.get<int64_t>());
  constants.offsets = config["offsets"][layer].get<std::vector<int64_t>>();
  constants.heads = config["heads"];
  constants.pad = config["pad"];
  return constants;
}

std::vector<int64_t> Rows(const NgramRefConstants& constants, const std::vector<int32_t>& window) {
  const NgramHashParameters parameters = {.max_ngram_size = static_cast<int>(constants.multipliers.size()),
                                          .num_heads = static_cast<int>(constants.heads),
                                          .multipliers = constants.multipliers.data(),
                                          .primes = constants.primes.data(),
                                          .offsets = constants.offsets.data(),
                                          .pad_id = static_cast<int32_t>(constants.pad)};
  std::vector<int64_t> rows(constants.primes.size());
  NgramRows(parameters, window.data(), rows.data());
  return rows;
}

// The window of position `at` of ids, whose first element stands at absolute position `first`; what lies before it is in `history`.
std::vector<int32_t> WindowOf(const std::vector<int32_t>& history, const std::vector<int32_t>& ids, size_t at, size_t size) {
  std::vector<int32_t> all = history;
  all.insert(all.end(), ids.begin(), ids.end());
  std::vector<int32_t> window;
  for (size_t s = 0; s < size; ++s) {
    const size_t distance_to_end = history.size() + at;
    window.push_back(distance_to_end >= s ? all[distance_to_end - s] : kDeadTokenId);
  }
  return window;
}

TEST(NgramHashTest, EqualsTheGoldenRowsWholeAndInEveryChunking) {
  const Json golden = ReadJsonFile(SourcePath("tests/golden/engram_hash/hash.json"));
  ASSERT_EQ(golden["dead"], kDeadTokenId);
  int64_t rows_checked = 0, chunks_checked = 0;
  for (const Json& one : golden["cases"]) {
    const Json& config = golden["configs"][one["config"].get<std::string>()];
    SCOPED_TRACE(one["config"].get<std::string>() + " " + one["name"].get<std::string>());
    const auto ids = one["compressed"].get<std::vector<int32_t>>();
    const size_t size = config["max_ngram"];
    for (size_t layer = 0; layer < config["layers"].size(); ++layer) {
      const NgramRefConstants constants = FlatConstants(config, layer);
      const auto want = one["rows"][layer].get<std::vector<std::vector<int64_t>>>();
      ASSERT_EQ(want.size(), ids.size());
      for (size_t p = 0; p < ids.size(); ++p, ++rows_checked) {
        EXPECT_EQ(Rows(constants, WindowOf({}, ids, p, size)), want[p]) << "position " << p;
        EXPECT_EQ(NgramRowsRef(constants, ids, static_cast<int64_t>(p)), want[p]) << "twin, position " << p;
      }
      for (const Json& chunking : one["chunkings"])
        for (const Json& chunk : chunking) {
          const size_t begin = chunk["begin"], end = chunk["end"];
          const auto history = chunk["history_in"].get<std::vector<int32_t>>();
          const std::vector<int32_t> part(ids.begin() + static_cast<int64_t>(begin), ids.begin() + static_cast<int64_t>(end));
          for (size_t p = begin; p < end; ++p, ++chunks_checked)
            EXPECT_EQ(Rows(constants, WindowOf(history, part, p - begin, size)), want[p]) << "chunk at " << begin << " position " << p;
        }
    }
  }
  EXPECT_GT(rows_checked, 100);
  EXPECT_GT(chunks_checked, rows_checked);
}

TEST(NgramHashTest, EqualsTheGoldenRowsOfTheFormatsFile) {
  const auto golden = ReadTensors("tests/golden/formats/formats.safetensors");
  std::vector<int32_t> ids = golden.at("engram.compressed_ids").As<int32_t>();
  const std::vector<int32_t> dead = golden.at("engram.dead").As<int32_t>();
  for (size_t i = 0; i < ids.size(); ++i)
    if (dead[i] != 0) ids[i] = kDeadTokenId;
  for (const std::string layer : {"engram.L1", "engram.L14"}) {
    NgramRefConstants constants;
    constants.multipliers = golden.at(layer + ".multipliers").As<int64_t>();
    constants.primes = golden.at(layer + ".primes").As<int64_t>();
    int64_t offset = 0;
    for (int64_t prime : constants.primes) constants.offsets.push_back(offset), offset += prime;
    constants.heads = 8;
    constants.pad = 2;
    const std::vector<int64_t> want = golden.at(layer + ".rows").As<int64_t>();
    ASSERT_EQ(want.size(), ids.size() * 24);
    for (size_t p = 0; p < ids.size(); ++p)
      EXPECT_EQ(Rows(constants, WindowOf({}, ids, p, 4)), std::vector<int64_t>(want.begin() + static_cast<int64_t>(p * 24),
                                                                              want.begin() + static_cast<int64_t>(p * 24 + 24)));
  }
}

// The largest ids and multipliers a model can have: the products come within a factor of two of 2^63.
TEST(NgramHashTest, EqualsTheTwinAtTheRangesEnd) {
  std::mt19937_64 generator(5);
  constexpr int64_t kVocab = 99092;
  const int64_t multiplier_max = INT64_MAX / kVocab / 2 * 2 - 1;
  NgramRefConstants constants;
  for (int s = 0; s < kNgramSizeMax; ++s) constants.multipliers.push_back(multiplier_max - 2 * s);
  for (int64_t column = 0; column < 3 * (kNgramSizeMax - 1); ++column) {
    constants.primes.push_back(16000057 + 2 * column);
    constants.offsets.push_back(column * 16000057);
  }
  constants.heads = 3;
  constants.pad = kVocab - 1;
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> ids(12);
    for (int32_t& id : ids) id = generator() % 8 == 0 ? kDeadTokenId : static_cast<int32_t>(kVocab - 1 - generator() % 5);
    for (size_t p = 0; p < ids.size(); ++p)
      EXPECT_EQ(Rows(constants, WindowOf({}, ids, p, kNgramSizeMax)), NgramRowsRef(constants, ids, static_cast<int64_t>(p)));
  }
}

}  // namespace
}  // namespace tessera::testing
