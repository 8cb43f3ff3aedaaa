#include "kernels/tier.h"

#include "core/check.h"

namespace tessera {
namespace {

Tier DetectTier() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("f16c");
  if (!avx2) return Tier::kScalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
                      __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("avx512vpopcntdq") &&
                      __builtin_cpu_supports("avx512ifma") && __builtin_cpu_supports("gfni") && __builtin_cpu_supports("avx512bf16");
  return avx512 ? Tier::kAvx512 : Tier::kAvx2;
}

Tier& Active() {
  static Tier tier = DetectTier();
  return tier;
}

}  // namespace

Tier BestTier() {
  static const Tier tier = DetectTier();
  return tier;
}

Tier ActiveTier() { return Active(); }

void SetActiveTier(Tier tier) {
  TSR_CHECK(tier <= BestTier(), "this CPU runs tiers up to {}, {} was asked for", TierName(BestTier()), TierName(tier));
  Active() = tier;
}

std::string_view TierName(Tier tier) {
  switch (tier) {
    case Tier::kScalar: return "scalar";
    case Tier::kAvx2: return "avx2";
    case Tier::kAvx512: return "avx512";
  }
  return "?";
}

}  // namespace tessera
