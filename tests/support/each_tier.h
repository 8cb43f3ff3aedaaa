// Runs a test body on every instruction tier this CPU has, and makes its random inputs.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/random.h"
#include "kernels/tier.h"

namespace tessera::testing {

template <class Body>
void ForEachTier(const Body& body) {
  for (int tier = 0; tier <= static_cast<int>(BestTier()); ++tier) {
    SetActiveTier(static_cast<Tier>(tier));
    SCOPED_TRACE(std::string(TierName(ActiveTier())));
    body();
  }
  SetActiveTier(BestTier());
}

// `count` values of T, uniform in [low, high) before rounding to T; the same for the same seed.
template <class T>
std::vector<T> RandomValues(uint64_t seed, int64_t count, double low, double high) {
  std::vector<T> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] =
        FromFloat<T>(static_cast<float>(low + (high - low) * UniformDouble(seed, 0, static_cast<uint64_t>(i))));
  return values;
}

// Largest relative error of one rounding to T.
template <class T>
constexpr double kRounding = sizeof(T) == 2 ? 0x1p-8 : 0x1p-24;

}  // namespace tessera::testing
