#include "core/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/check.h"

namespace tessera {
namespace {

TEST(ArenaTest, AllocationsAreAlignedZeroedAndApart) {
  Arena arena("test", 1 << 20);
  float* const a = arena.Allocate<float>(3);
  float* const b = arena.Allocate<float>(17);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % Arena::kAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % Arena::kAlignment, 0u);
  EXPECT_GE(b, a + 3);
  for (int i = 0; i < 17; ++i) EXPECT_EQ(b[i], 0.0f);
  EXPECT_EQ(arena.used_bytes(), 64u + 128u);
  EXPECT_EQ(arena.capacity_bytes(), size_t{1} << 20);
}

TEST(ArenaTest, ViewsHaveTheShapeAskedFor) {
  Arena arena("test", 1 << 12);
  const View<int32_t> view = arena.AllocateView<int32_t>(3, 5);
  EXPECT_EQ(view.rows, 3);
  EXPECT_EQ(view.cols, 5);
  EXPECT_EQ(view.stride, 5);
  EXPECT_EQ(arena.used_bytes(), 64u);
}

TEST(ArenaTest, RewindAliasesWhatFollowsTheMark) {
  Arena arena("test", 1 << 12);
  (void)arena.Allocate<float>(1);
  const size_t mark = arena.used_bytes();
  const float* const first = arena.Allocate<float>(100);
  arena.Rewind(mark);
  EXPECT_EQ(arena.Allocate<float>(10), first);
}

TEST(ArenaTest, FillsToTheLastByte) {
  Arena arena("test", 128);
  EXPECT_NE(arena.AllocateBytes(128), nullptr);
  EXPECT_EQ(arena.used_bytes(), 128u);
}

TEST(ArenaTest, MeasuringCountsWhatAFixedArenaWouldUse) {
  Arena measuring = Arena::Measuring("sizes"), fixed("sizes", 1 << 20);
  for (const int64_t count : {1, 64, 1000, 0, 17}) {
    EXPECT_NE(measuring.Allocate<float>(count), nullptr);
    fixed.Allocate<float>(count);
  }
  EXPECT_EQ(measuring.used_bytes(), fixed.used_bytes());
  measuring.AllocateBytes(size_t{1} << 50);  // no address space is needed for it
  EXPECT_EQ(measuring.capacity_bytes(), 0u);
  EXPECT_DEATH(*measuring.Allocate<int>(1) = 1, "");
}

TEST(ArenaTest, GrowingKeepsWhatWasAllocatedInPlace) {
  Arena arena = Arena::Growing("arguments");
  std::vector<int64_t*> places;
  for (int64_t i = 0; i < 100; ++i) {
    places.push_back(arena.Allocate<int64_t>(3000));  // 24,000 bytes: more than a block holds in all
    for (int64_t j = 0; j < 3000; ++j) {
      ASSERT_EQ(places.back()[j], 0);
      places.back()[j] = i;
    }
  }
  int64_t* large = arena.Allocate<int64_t>(1 << 20);  // larger than a block
  large[(1 << 20) - 1] = 7;
  for (int64_t i = 0; i < 100; ++i)
    for (int64_t j = 0; j < 3000; ++j) ASSERT_EQ(places[static_cast<size_t>(i)][j], i);
  EXPECT_EQ(arena.used_bytes(), 100u * 24000 + (8u << 20));
  arena.Seal();
  EXPECT_DEATH(arena.AllocateBytes(1), "sealed");
}

TEST(ArenaTest, ARefusedReservationIsAnErrorWithTheName) {
  try {
    Arena arena("the caches", size_t{1} << 60);
    FAIL() << "an exbibyte was reserved";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the caches"), std::string::npos) << error.what();
  }
}

TEST(ArenaDeathTest, SealedAborts) {
  Arena arena("plan", 1 << 12);
  (void)arena.Allocate<float>(1);
  EXPECT_FALSE(arena.sealed());
  arena.Seal();
  EXPECT_TRUE(arena.sealed());
  EXPECT_DEATH(arena.Allocate<float>(1), "arena plan is sealed");
}

TEST(ArenaDeathTest, FullAborts) {
  Arena arena("plan", 128);
  (void)arena.AllocateBytes(64);
  EXPECT_DEATH(arena.AllocateBytes(65), "64 of 128 bytes used, 65 more");
  EXPECT_DEATH(arena.AllocateBytes(~size_t{0}), "more asked for");
}

TEST(ArenaDeathTest, AMarkBeyondWhatIsUsedAborts) {
  Arena arena("plan", 128);
  EXPECT_DEATH(arena.Rewind(64), "mark 64 lies beyond");
}

}  // namespace
}  // namespace tessera
