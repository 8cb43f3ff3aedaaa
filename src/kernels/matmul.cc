#include "kernels/matmul.h"

#include <type_traits>

#include "core/check.h"
#include "kernels/matmul_body.h"

namespace tessera {
namespace {

// Which of the AVX-512 tier's two ways to multiply bf16 activations runs. The bits are the same, so the CPU's maker decides by speed: AMD's
// cores do as many bf16 dots a cycle as fmas (Zen 4: 233 against 117 GFLOP/s), Intel's a quarter as many (Emerald Rapids: 87 against 179).
bool ChooseBf16Dot() {
  __builtin_cpu_init();
  return BestTier() == Tier::kAvx512 && __builtin_cpu_is("amd") && avx512::Bf16DotIsFmaChain();
}

bool& Bf16Dot() {
  static bool used = ChooseBf16Dot();
  return used;
}

bool UseBf16Dot(bool bf16_activations, Format format) {
  return bf16_activations && format != Format::kF32 && ActiveTier() == Tier::kAvx512 && Bf16Dot();
}

void Pack(Format format, const PackCall& call) noexcept {
  if (UseBf16Dot(call.x_is_bf16, format)) {
    if (format == Format::kBF16) return avx512::PackDotBF16(call);
    return format == Format::kE4M3 ? avx512::PackDotE4m3(call) : avx512::PackDotE2m1(call);
  }
  switch (format) {
    case Format::kBF16:
      return TSR_DISPATCH(PackBF16(call));
    case Format::kF32:
      return TSR_DISPATCH(PackF32(call));
    case Format::kE4M3:
      return TSR_DISPATCH(PackE4m3(call));
    case Format::kE2M1:
      return TSR_DISPATCH(PackE2m1(call));
  }
}

void MatMul(const MatMulCall& call, bool bf16_activations) noexcept {
  const Format format = call.weights->format;
  if (UseBf16Dot(bf16_activations, format)) {
    if (format == Format::kBF16) return avx512::MatMulDotBF16(call);
    return format == Format::kE4M3 ? avx512::MatMulDotE4m3(call) : avx512::MatMulDotE2m1(call);
  }
  switch (format) {
    case Format::kBF16:
      return TSR_DISPATCH(MatMulBF16(call));
    case Format::kF32:
      return TSR_DISPATCH(MatMulF32(call));
    case Format::kE4M3:
      return TSR_DISPATCH(MatMulE4m3(call));
    case Format::kE2M1:
      return TSR_DISPATCH(MatMulE2m1(call));
  }
}

}  // namespace

MatMulDot ActiveMatMulDot() { return Bf16Dot() ? MatMulDot::kBf16 : MatMulDot::kFma; }

void SetMatMulDot(MatMulDot dot) {
  TSR_CHECK(dot == MatMulDot::kFma || (BestTier() == Tier::kAvx512 && avx512::Bf16DotIsFmaChain()),
            "this CPU has no bf16 dot of the right bits");
  Bf16Dot() = dot == MatMulDot::kBf16;
}

template <class A>
int64_t PackedBytes(Format, int64_t num_rows, int64_t cols) {
  return num_rows * PackedRowFloats(PaddedCols(cols)) * static_cast<int64_t>(sizeof(float));
}

template <class A>
void PackActivations(View<const A> x, const int32_t* row_indices, int64_t num_rows, Format format, void* packed) noexcept {
  Pack(format, {x.data, x.stride, std::is_same_v<A, bf16>, row_indices, num_rows, x.cols, static_cast<float*>(packed)});
}

template <class A, class O>
void MatMulPacked(const void* packed, int64_t num_rows, const QuantView& w, View<O> out, void* scratch, const int32_t* out_rows) noexcept {
  MatMul({static_cast<const float*>(packed), num_rows, &w, out.data, out.stride, std::is_same_v<O, bf16>, out_rows,
          static_cast<uint8_t*>(scratch)},
         std::is_same_v<A, bf16>);
}

int64_t MatMulScratchBytes(int64_t cols) { return ScaleWordBytes(cols) + kDecodedBytes + kSumBytes; }

void CheckMatMulWeights(const QuantView& w) {
  TSR_CHECK(w.payload != nullptr && w.rows > 0 && w.cols > 0, "weights [{}, {}]", w.rows, w.cols);
  TSR_CHECK(w.row_bytes >= FormatRowBytes(w.format, w.cols), "rows of {} bytes for {} columns", w.row_bytes, w.cols);
  if (w.format == Format::kBF16 || w.format == Format::kF32) return;
  TSR_CHECK(w.scales != nullptr, "quantised weights without scales");
  TSR_CHECK(w.block_rows > 0 && w.block_cols > 0 && (w.block_cols % 32 == 0 || w.block_cols >= w.cols), "scale block {} x {}", w.block_rows,
            w.block_cols);
  TSR_CHECK(w.row_offset >= 0 && w.row_offset < w.block_rows, "row offset {} in a block of {} rows", w.row_offset, w.block_rows);
}

template int64_t PackedBytes<bf16>(Format, int64_t, int64_t);
template int64_t PackedBytes<float>(Format, int64_t, int64_t);
template void PackActivations<bf16>(View<const bf16>, const int32_t*, int64_t, Format, void*) noexcept;
template void PackActivations<float>(View<const float>, const int32_t*, int64_t, Format, void*) noexcept;
template void MatMulPacked<bf16, bf16>(const void*, int64_t, const QuantView&, View<bf16>, void*, const int32_t*) noexcept;
template void MatMulPacked<bf16, float>(const void*, int64_t, const QuantView&, View<float>, void*, const int32_t*) noexcept;
template void MatMulPacked<float, bf16>(const void*, int64_t, const QuantView&, View<bf16>, void*, const int32_t*) noexcept;
template void MatMulPacked<float, float>(const void*, int64_t, const QuantView&, View<float>, void*, const int32_t*) noexcept;

}  // namespace tessera
