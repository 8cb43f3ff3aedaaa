#include "kernels/tier.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(TierTest, StartsAtTheBestAndCanOnlyBeLowered) {
  EXPECT_EQ(ActiveTier(), BestTier());
  for (const Tier tier : {Tier::kScalar, Tier::kAvx2, Tier::kAvx512}) {
    if (tier > BestTier()) {
      EXPECT_DEATH(SetActiveTier(tier), "this CPU runs tiers up to");
    } else {
      SetActiveTier(tier);
      EXPECT_EQ(ActiveTier(), tier);
    }
  }
  EXPECT_DEATH(SetActiveTier(static_cast<Tier>(99)), "this CPU runs tiers up to");
  SetActiveTier(BestTier());
}

TEST(TierTest, NamesAreThoseOfTheOption) {
  EXPECT_EQ(TierName(Tier::kScalar), "scalar");
  EXPECT_EQ(TierName(Tier::kAvx2), "avx2");
  EXPECT_EQ(TierName(Tier::kAvx512), "avx512");
}

namespace scalar {
Tier Copy() { return Tier::kScalar; }
}  // namespace scalar
namespace avx2 {
Tier Copy() { return Tier::kAvx2; }
}  // namespace avx2
namespace avx512 {
Tier Copy() { return Tier::kAvx512; }
}  // namespace avx512

TEST(TierTest, DispatchCallsTheActiveCopy) {
  for (const Tier tier : {Tier::kScalar, Tier::kAvx2, Tier::kAvx512}) {
    if (tier > BestTier()) continue;
    SetActiveTier(tier);
    EXPECT_EQ(TSR_DISPATCH(Copy()), tier);
  }
  SetActiveTier(BestTier());
}

}  // namespace
}  // namespace tessera
