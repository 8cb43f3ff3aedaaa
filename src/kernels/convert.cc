#include "kernels/convert.h"

#include <cstring>

#include "core/check.h"
#include "kernels/tier.h"

namespace tessera {

TSR_DECLARE_TIERS(
    template <class T> void QuantizeQ8Row(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept;
    template <class T> void DequantizeQ8Row(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept;
    template <class T> void FakeQuantizeQ8Row(T* x, int64_t cols, int64_t block) noexcept;
    template <class T> void QuantizeQ4Row(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept;
    template <class T> void DequantizeQ4Row(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept;
    template <class T> void QuantizeQ4eRow(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept;
    template <class T> void DequantizeQ4eRow(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept;
    void NarrowRow(const float* x, int64_t cols, bf16* y) noexcept;
    void WidenRow(const bf16* x, int64_t cols, float* y) noexcept;)

namespace {

constexpr int64_t kPackedBlockMax = 1024;  // the packed formats' bodies buffer whole blocks on the stack

void CheckBlock(int64_t block) { TSR_CHECK(block > 0, "block of {} columns", block); }
void CheckPackedBlock(int64_t block) {
  TSR_CHECK(block > 0 && block % 2 == 0 && block <= kPackedBlockMax, "packed block of {} columns: wants even, at most {}", block,
            kPackedBlockMax);
}

}  // namespace

template <class T>
void QuantizeQ8(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept {
  CheckBlock(block);
  TSR_DISPATCH(QuantizeQ8Row(x, cols, block, codes, scales));
}
template <class T>
void DequantizeQ8(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept {
  CheckBlock(block);
  TSR_DISPATCH(DequantizeQ8Row(codes, scales, cols, block, x));
}
template <class T>
void QuantizeQ4(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept {
  CheckPackedBlock(block);
  TSR_DISPATCH(QuantizeQ4Row(x, cols, block, codes, scales));
}
template <class T>
void DequantizeQ4(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept {
  CheckPackedBlock(block);
  TSR_DISPATCH(DequantizeQ4Row(codes, scales, cols, block, x));
}
template <class T>
void QuantizeQ4e(const T* x, int64_t cols, int64_t block, uint8_t* codes, uint8_t* scales) noexcept {
  CheckPackedBlock(block);
  TSR_DISPATCH(QuantizeQ4eRow(x, cols, block, codes, scales));
}
template <class T>
void DequantizeQ4e(const uint8_t* codes, const uint8_t* scales, int64_t cols, int64_t block, T* x) noexcept {
  CheckPackedBlock(block);
  TSR_DISPATCH(DequantizeQ4eRow(codes, scales, cols, block, x));
}
template <class T>
void FakeQuantizeQ8(T* x, int64_t cols, int64_t block) noexcept {
  CheckBlock(block);
  TSR_DISPATCH(FakeQuantizeQ8Row(x, cols, block));
}

template void QuantizeQ8(const bf16*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ8(const uint8_t*, const uint8_t*, int64_t, int64_t, bf16*) noexcept;
template void QuantizeQ4(const bf16*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ4(const uint8_t*, const uint8_t*, int64_t, int64_t, bf16*) noexcept;
template void QuantizeQ4e(const bf16*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ4e(const uint8_t*, const uint8_t*, int64_t, int64_t, bf16*) noexcept;
template void FakeQuantizeQ8(bf16*, int64_t, int64_t) noexcept;
template void QuantizeQ8(const float*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ8(const uint8_t*, const uint8_t*, int64_t, int64_t, float*) noexcept;
template void QuantizeQ4(const float*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ4(const uint8_t*, const uint8_t*, int64_t, int64_t, float*) noexcept;
template void QuantizeQ4e(const float*, int64_t, int64_t, uint8_t*, uint8_t*) noexcept;
template void DequantizeQ4e(const uint8_t*, const uint8_t*, int64_t, int64_t, float*) noexcept;
template void FakeQuantizeQ8(float*, int64_t, int64_t) noexcept;

void ConvertRow(const float* x, int64_t cols, bf16* y) noexcept { TSR_DISPATCH(NarrowRow(x, cols, y)); }
void ConvertRow(const bf16* x, int64_t cols, float* y) noexcept { TSR_DISPATCH(WidenRow(x, cols, y)); }
void ConvertRow(const float* x, int64_t cols, float* y) noexcept { std::memmove(y, x, static_cast<size_t>(cols) * sizeof(float)); }
void ConvertRow(const bf16* x, int64_t cols, bf16* y) noexcept { std::memmove(y, x, static_cast<size_t>(cols) * sizeof(bf16)); }

}  // namespace tessera
