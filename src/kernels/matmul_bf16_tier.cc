#include "kernels/matmul_loops-inl.h"

namespace tessera::TSR_TIER {

void PackBF16(const PackCall& call) noexcept { PackRows<DecodeBF16>(call); }
void MatMulBF16(const MatMulCall& call) noexcept { MatMulRows<DecodeBF16>(call); }

}  // namespace tessera::TSR_TIER
