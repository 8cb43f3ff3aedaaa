#include "kernels/matmul_loops-inl.h"

namespace tessera::TSR_TIER {

void PackE4m3(const PackCall& call) noexcept { PackRows<DecodeE4m3>(call); }
void MatMulE4m3(const MatMulCall& call) noexcept { MatMulRows<DecodeE4m3>(call); }

}  // namespace tessera::TSR_TIER
