// Probes of the vector vocabulary: each applies one operation to arrays, so that vec_test.cc can run it on every tier.
#include "kernels/codes-inl.h"

namespace tessera::TSR_TIER {

int ProbeLanes() noexcept { return kLanes; }

void ProbeCopy(const float* x, int count, float* y) noexcept { Store(Load(x, count), y, count); }
void ProbeCopy(const bf16* x, int count, bf16* y) noexcept { Store(Load(x, count), y, count); }
// A whole register loaded from `count` values: what lies beyond must read as zeros.
void ProbeLoadTail(const float* x, int count, float* lanes) noexcept { Store(Load(x, count), lanes); }
void ProbeLoadTail(const bf16* x, int count, float* lanes) noexcept { Store(Load(x, count), lanes); }
void ProbeBytesTail(const uint8_t* x, int count, float* lanes) noexcept { Store(ToVec(LoadBytes(x, Tail{count})), lanes); }

// y = op(a, b, c) element by element; `op` names the vocabulary's function.
enum class Op : int {
  kAdd, kSubtract, kMultiply, kDivide, kMulAdd, kMin, kMax, kSqrt, kAbs, kRoundNearest, kSelectLess, kScaleByPowerOfTwo, kRoundToBf16, kExp,
  kSigmoid
};
Vec Apply(Op op, Vec a, Vec b, Vec c) {
  switch (op) {
    case Op::kAdd: return a + b;
    case Op::kSubtract: return a - b;
    case Op::kMultiply: return a * b;
    case Op::kDivide: return a / b;
    case Op::kMulAdd: return MulAdd(a, b, c);
    case Op::kMin: return Min(a, b);
    case Op::kMax: return Max(a, b);
    case Op::kSqrt: return Sqrt(a);
    case Op::kAbs: return Abs(a);
    case Op::kRoundNearest: return RoundNearest(a);
    case Op::kSelectLess: return SelectLess(a, b, c, a);
    case Op::kScaleByPowerOfTwo: return ScaleByPowerOfTwo(a, b);
    case Op::kRoundToBf16: return RoundToBf16(a);
    case Op::kExp: return Exp(a);
    case Op::kSigmoid: return Sigmoid(a);
  }
  return a;
}
void ProbeApply(int op, const float* const* abc, int64_t count, float* y) noexcept {
  ForEachVec(count, [&](int64_t i, auto part) {
    Store(Apply(static_cast<Op>(op), Load(abc[0] + i, part), Load(abc[1] + i, part), Load(abc[2] + i, part)), y + i, part);
  });
}
void ProbeNarrow(const float* x, int64_t count, bf16* y) noexcept {
  ForEachVec(count, [&](int64_t i, auto part) { Store(Load(x + i, part), y + i, part); });
}
float ProbeReduceAdd(const float* lanes) noexcept { return ReduceAdd(Load(lanes)); }
float ProbeReduceMax(const float* lanes) noexcept { return ReduceMax(Load(lanes)); }
uint32_t ProbeMaskGreaterEqual(const float* a, const float* b) noexcept { return MaskGreaterEqual(Load(a), Load(b)); }

template <class T>
void ProbeEvenOdd(const T* x, int64_t pairs, T* even, T* odd, T* back) noexcept {
  ForEachVec(pairs, [&](int64_t i, auto part) {
    const VecPair v = LoadEvenOdd(x + 2 * i, part);
    Store(v.first, even + i, part);
    Store(v.second, odd + i, part);
    StoreEvenOdd(v, back + 2 * i, part);
  });
}
template void ProbeEvenOdd(const bf16*, int64_t, bf16*, bf16*, bf16*) noexcept;
template void ProbeEvenOdd(const float*, int64_t, float*, float*, float*) noexcept;

template <class T>
void ProbePair(const T* x, T* back, float* sum) noexcept {
  Vec a, b;
  LoadPair(x, &a, &b);
  StorePair(a, b, back);
  *sum = ReduceAdd(a + b);
}
template void ProbePair(const bf16*, bf16*, float*) noexcept;
template void ProbePair(const float*, float*, float*) noexcept;

void ProbeEncode(bool four_bits, const float* x, int64_t count, uint8_t* codes) noexcept {
  ForEachVec(count, [&](int64_t i, auto part) {
    const Vec v = Load(x + i, part);
    StoreBytes(four_bits ? EncodeE2m1(v) : EncodeE4m3(v), codes + i, part);
  });
}
void ProbeDecode(bool four_bits, const uint8_t* codes, int64_t count, float* x) noexcept {
  ForEachVec(count, [&](int64_t i, auto part) {
    const IntVec code = LoadBytes(codes + i, part);
    Store(four_bits ? DecodeE2m1(code) : DecodeE4m3(code), x + i, part);
  });
}

}  // namespace tessera::TSR_TIER
