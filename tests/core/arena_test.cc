#include "core/arena.h"

#include <gtest/gtest.h>

#include <cstdint>

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
