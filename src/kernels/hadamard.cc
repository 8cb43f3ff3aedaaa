#include "kernels/hadamard.h"

#include "core/check.h"
#include "kernels/tier.h"

namespace tessera {

TSR_DECLARE_TIERS(template <class T> void HadamardRow(T* x, int64_t n) noexcept;)

template <class T>
void Hadamard(T* x, int64_t n) noexcept {
  TSR_CHECK(n >= 1 && n <= 1024 && (n & (n - 1)) == 0, "Hadamard of {} values: wants a power of two up to 1024", n);
  TSR_DISPATCH(HadamardRow(x, n));
}

template void Hadamard(bf16*, int64_t) noexcept;
template void Hadamard(float*, int64_t) noexcept;

}  // namespace tessera
