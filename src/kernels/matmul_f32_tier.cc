#include "kernels/matmul_loops-inl.h"

namespace tessera::TSR_TIER {

void PackF32(const PackCall& call) noexcept { PackRows<DecodeF32>(call); }
void MatMulF32(const MatMulCall& call) noexcept { MatMulRows<DecodeF32>(call); }

}  // namespace tessera::TSR_TIER
