// The limits read every byte they are said to read and do every product they are said to do; what they come to is compared with
// independent programs by tests/end_to_end/bench_stream_slow.py.
#include "kernels/machine_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/random.h"
#include "support/each_tier.h"

namespace tessera {
namespace {

uint64_t SumOfWords(const uint8_t* data, int64_t bytes) {
  uint64_t total = 0;
  for (int64_t i = 0; i < bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, data + i, 8);
    total += word;
  }
  return total;
}

TEST(MachineRateTest, ReadsEveryByte) {
  WorkerPool pool({.num_workers = 2, .pin = false});
  const RateBuffer buffer(1, pool);
  ASSERT_EQ(buffer.bytes(), int64_t{1} << 21);
  testing::ForEachTier([&] {
    for (const int64_t blocks : {0, 1, 2, 3, 7, 64}) {
      const int64_t bytes = blocks * kStreamBlockBytes;
      EXPECT_EQ(ReadStream(buffer.data() + 64, bytes), SumOfWords(buffer.data() + 64, bytes)) << blocks << " blocks";
    }
    for (const int64_t count : {0, 1, 3, 16, 17, 40}) {
      std::vector<uint32_t> rows;
      uint64_t expected = 0;
      for (int64_t i = 0; i < count; ++i) {
        rows.push_back(static_cast<uint32_t>(UniformDouble(3, 0, static_cast<uint64_t>(i)) * 8192));
        expected += SumOfWords(buffer.data() + rows.back() * kGatherRowBytes, kGatherRowBytes);
      }
      EXPECT_EQ(ReadRows(buffer.data(), rows.data(), count), expected) << count << " rows";
    }
  });
}

// Every term is a small whole number: the sums are exact, and one loop adds a product to each lane of each sum.
TEST(MachineRateTest, DoesEveryProduct) {
  testing::ForEachTier([&] {
    for (const int64_t loops : {0, 1, 5, 1000}) {
      EXPECT_EQ(RunFma(3.0f, 2.0f, loops), 6.0f * static_cast<float>(loops * FmaFlopsPerLoop() / 2));
      if (HasBf16Dot()) {
        EXPECT_EQ(RunBf16Dot(3.0f, 2.0f, loops), 6.0f * static_cast<float>(loops * Bf16DotFlopsPerLoop() / 2));
      }
    }
  });
}

TEST(MachineRateTest, FillDoesNotDependOnTheWorkers) {
  WorkerPool one({.num_workers = 1, .pin = false}), three({.num_workers = 3, .pin = false});
  const RateBuffer a(int64_t{3} << 20, one), b(int64_t{3} << 20, three);
  ASSERT_EQ(a.bytes(), int64_t{4} << 20);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())), 0);
  EXPECT_NE(std::memcmp(a.data(), a.data() + 4096, 4096), 0);
}

TEST(MachineRateTest, MeasuresOnEveryTier) {
  WorkerPool pool({.num_workers = 2, .pin = false});
  const RateBuffer buffer(int64_t{1} << 21, pool);
  testing::ForEachTier([&] {
    const MachineRates rates = MeasureMachine(pool, buffer, {.passes = 3, .dot_loops = 1000});
    EXPECT_EQ(rates.num_workers, 2);
    for (const RateSpread& rate : {rates.stream_gb_per_s, rates.gather_gb_per_s, rates.fma_gflop_per_s}) {
      EXPECT_GT(rate.min, 0);
      EXPECT_LE(rate.min, rate.median);
      EXPECT_LE(rate.median, rate.max);
      EXPECT_TRUE(std::isfinite(rate.max));
    }
    EXPECT_EQ(rates.bf16_dot_gflop_per_s.median > 0, HasBf16Dot());
    EXPECT_EQ(rates.DotGflopPerS(), std::max(rates.fma_gflop_per_s.median, rates.bf16_dot_gflop_per_s.median));
  });
}

TEST(MachineRateTest, Spread) {
  const RateSpread odd = SpreadOf({3, 1, 2}), even = SpreadOf({4, 1, 3, 2}), none = SpreadOf({});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 3);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(none.median, 0);
}

}  // namespace
}  // namespace tessera
