#include "kernels/tier.h"

#include <cpuid.h>

#include "core/check.h"

namespace tessera {
namespace {

// clang 14's __builtin_cpu_supports does not know the name f16c.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

Tier DetectTier() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") && HasF16c();
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
