#include "kernels/compress.h"

#include "core/check.h"
#include "kernels/tier.h"

namespace tessera {

TSR_DECLARE_TIERS(
    void PoolColumns(const float* const* u, const float* const* g, int64_t num_slots, int64_t cols, bf16* e) noexcept;
    void PoolColumns(const float* const* u, const float* const* g, int64_t num_slots, int64_t cols, float* e) noexcept;)

template <class T>
void PoolEntry(const float* const* u, const float* const* g, int64_t num_slots, int64_t cols, T* e) noexcept {
  TSR_CHECK(num_slots >= 1 && cols >= 0, "num_slots {}, cols {}", num_slots, cols);
  TSR_DISPATCH(PoolColumns(u, g, num_slots, cols, e));
}

template void PoolEntry(const float* const*, const float* const*, int64_t, int64_t, bf16*) noexcept;
template void PoolEntry(const float* const*, const float* const*, int64_t, int64_t, float*) noexcept;

}  // namespace tessera
