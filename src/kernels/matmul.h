// Linear layers over weights as the checkpoint stores them: out[m][n] = sum_k x[m][k] * w[n][k].
//
// One K order for every M, tile and worker (docs/numerics.md): the columns are taken in groups of 128 (the last one padded with zeros); in
// a group (on tiers with fewer lanes, in each half or quarter of it) t is eight products a lane chained by fma from zero, then
// acc = fma(t, scale, acc) with a scale per lane; one fixed tree sums the lanes of acc.
// So a GEMV and a GEMM give equal bits, and so do any two ways of cutting rows over workers. Products of bf16 activations and decoded
// codes are exact in fp32; sums are fp32. Every scale byte 0..254 is exact; E4M3's NaN codes, which no checkpoint holds, count as +-480;
// bf16 activations below 2^-100 count as zero against quantised weights.
//
// Activations are packed first, in the column order in which the decoder of the weight format emits its codes, padded to 128 columns.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/quant_view.h"
#include "core/view.h"

namespace tessera {

constexpr int64_t kMatMulGroupCols = 128;

// Bytes of `num_rows` packed rows of `cols` activations for weights of `format`. F32 weights always take fp32 activations.
template <class A>
int64_t PackedBytes(Format format, int64_t num_rows, int64_t cols);

// Packs rows of x: packed row i is x.Row(row_indices[i]), or x.Row(i) when row_indices is null. `packed` is 64-byte aligned.
template <class A>
void PackActivations(View<const A> x, const int32_t* row_indices, int64_t num_rows, Format format, void* packed) noexcept;

// out[m][n] for m < num_rows, n < w.rows (a view of the rows wanted: QuantView::Rows). A is the type that was packed, O what is stored
// (rounded once). With `out_rows` row m goes to out.Row(out_rows[m]). `scratch` is MatMulScratchBytes(w.cols) bytes, 64-byte aligned,
// private to the caller.
template <class A, class O>
void MatMulPacked(const void* packed, int64_t num_rows, const QuantView& w, View<O> out, void* scratch,
                  const int32_t* out_rows = nullptr) noexcept;

// Enough for any format and number of rows.
int64_t MatMulScratchBytes(int64_t cols);

// The AVX-512 tier multiplies bf16 activations by fma or by the bf16 dot instruction, whichever the CPU does faster: the bits are equal
// (a CPU whose instruction rounds otherwise is not asked to use it). Only weights stored as BF16 can tell them apart, by products below
// 2^-126, which the instruction takes as zero. Like SetActiveTier, the setter is for before kernels run.
enum class MatMulDot { kFma, kBf16 };
MatMulDot ActiveMatMulDot();
void SetMatMulDot(MatMulDot dot);

// Aborts unless the view is one the kernels take: sizes positive, block_cols a multiple of 32 (or >= cols) where there are scales.
void CheckMatMulWeights(const QuantView& w);

}  // namespace tessera
