#include "model/regions.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera {
namespace {

TEST(RegionsTest, EveryRegionHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int region = 0; region < kNumRegions; ++region) {
    const std::string_view name = RegionName(static_cast<Region>(region));
    EXPECT_NE(name, "?") << region;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

}  // namespace
}  // namespace tessera
