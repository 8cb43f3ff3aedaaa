#include "kernels/matmul_loops-inl.h"

namespace tessera::TSR_TIER {

void PackE2m1(const PackCall& call) noexcept { PackRows<DecodeE2m1>(call); }
void MatMulE2m1(const MatMulCall& call) noexcept { MatMulRows<DecodeE2m1>(call); }

}  // namespace tessera::TSR_TIER
