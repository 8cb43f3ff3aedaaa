// Instruction tiers. A kernel's body (<op>_tier.cc) is compiled once per tier into its own namespace; its entry (<op>.cc) checks the
// arguments and calls the active tier's copy. The tier is chosen once at start, from cpuid, and can only be lowered.
#pragma once

#include <string_view>

namespace tessera {

enum class Tier : int {
  kScalar,  // any x86-64
  kAvx2,    // AVX2, FMA, F16C, BMI2
  kAvx512,  // AVX-512 F/BW/DQ/VL/VBMI/VBMI2/VNNI/BITALG/VPOPCNTDQ/IFMA + GFNI + BF16 (Ice Lake's set and the bf16 dot product)
};

Tier BestTier();    // what this CPU can run
Tier ActiveTier();  // what kernels run; BestTier() until lowered
// Not thread-safe against running kernels; aborts when the CPU cannot run `tier`.
void SetActiveTier(Tier tier);
std::string_view TierName(Tier tier);  // "scalar", "avx2", "avx512"

}  // namespace tessera

// Declares the copies of a body: TSR_DECLARE_TIERS(void RmsNormRows(const Arguments& arguments) noexcept;)
#define TSR_DECLARE_TIERS(...)          \
  namespace scalar { __VA_ARGS__ }      \
  namespace avx2 { __VA_ARGS__ }        \
  namespace avx512 { __VA_ARGS__ }

// return TSR_DISPATCH(RmsNormRows(arguments)); calls the active tier's copy.
#define TSR_DISPATCH(call)                                   \
  (::tessera::ActiveTier() == ::tessera::Tier::kAvx512       \
       ? avx512::call                                        \
       : ::tessera::ActiveTier() == ::tessera::Tier::kAvx2   \
             ? avx2::call                                    \
             : scalar::call)
