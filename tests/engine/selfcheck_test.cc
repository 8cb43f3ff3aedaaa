#include "engine/selfcheck.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/check.h"
#include "kernels/tier.h"
#include "support/checkpoint_copy.h"
#include "support/golden_model.h"

namespace tessera {
namespace {

TEST(SelfcheckTest, PassesOnEveryTierAndLeavesTheTierAsItWas) {
  SetActiveTier(Tier::kScalar);
  const std::vector<CheckResult> results = RunSelfcheck(testing::GoldenDir("v4_tiny"));
  EXPECT_EQ(ActiveTier(), Tier::kScalar);
  SetActiveTier(BestTier());
  for (const CheckResult& result : results) {
    EXPECT_TRUE(result.passed) << result.name << ": " << result.detail;
    EXPECT_FALSE(result.detail.empty()) << result.name;
  }
  const auto has = [&](const std::string& name) {
    return std::any_of(results.begin(), results.end(), [&](const CheckResult& result) { return result.name == name; });
  };
  for (const char* format : {"bf16", "e4m3", "e2m1"}) EXPECT_TRUE(has(std::string("matmul ") + format)) << format;
  for (int tier = 0; tier <= static_cast<int>(BestTier()); ++tier)
    EXPECT_TRUE(has("model on " + std::string(TierName(static_cast<Tier>(tier))))) << tier;
}

TEST(SelfcheckTest, AModelThatGivesNoNumbersFails) {
  const testing::CheckpointCopy copy("tests/golden/v4_tiny");
  for (const char* shard : {testing::CheckpointCopy::kFirstShard, testing::CheckpointCopy::kSecondShard}) {
    if (testing::ReadTensors(std::string("tests/golden/v4_tiny/") + shard).count("norm.weight") == 0) continue;
    copy.SetByte(shard, "norm.weight", 0, 0xc0);  // the first weight becomes 0x7fc0, a NaN
    copy.SetByte(shard, "norm.weight", 1, 0x7f);
  }
  const std::vector<CheckResult> results = RunSelfcheck(copy.path());
  for (const CheckResult& result : results)
    EXPECT_EQ(result.passed, result.name.starts_with("matmul")) << result.name << ": " << result.detail;
  EXPECT_EQ(ActiveTier(), BestTier());
}

TEST(SelfcheckTest, AMissingModelIsAnErrorAndTheTierIsRestored) {
  EXPECT_THROW(RunSelfcheck("/no/such/model"), Error);
  EXPECT_EQ(ActiveTier(), BestTier());
}

}  // namespace
}  // namespace tessera
