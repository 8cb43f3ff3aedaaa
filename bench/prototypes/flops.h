// A program of its own for what the processor's multiply-adds give: sixteen independent sums per loop, in assembler. Like membw.h it shares
// nothing with kernels/machine_rate.h, which is held against it.
#pragma once

#include <cstdint>

#include "prototypes/membw.h"

// The registers are zeroed first: only the time counts.
#define PROTOTYPES_SIXTEEN_SUMS(zero, product, reg)                                                                                      \
  asm volatile(zero " %%" reg "30,%%" reg "30,%%" reg "30\n" zero " %%" reg "31,%%" reg "31,%%" reg "31\n"                               \
                    ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n" zero " %%" reg "\\r,%%" reg "\\r,%%" reg "\\r\n.endr\n.p2align 6\n" \
                    "1:\n.irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n" product " %%" reg "30,%%" reg "31,%%" reg "\\r\n.endr\n"        \
                    "dec %0\njnz 1b\nvzeroupper"                                                                                         \
               : "+r"(loops)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",    \
                 "xmm12", "xmm13", "xmm14", "xmm15")

namespace prototypes {

constexpr int64_t kSums = 16;

inline bool HasWideDots() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
}
inline double FmaGflopPerS(int num_threads, int64_t loops_each) {
  const double seconds = SecondsOnThreads(num_threads, [&](int) {
    int64_t loops = loops_each;
    PROTOTYPES_SIXTEEN_SUMS("vpxord", "vfmadd231ps", "zmm");
  });
  return static_cast<double>(num_threads * loops_each * kSums * 16 * 2) / 1e9 / seconds;
}
inline double Bf16DotGflopPerS(int num_threads, int64_t loops_each) {
  const double seconds = SecondsOnThreads(num_threads, [&](int) {
    int64_t loops = loops_each;
    PROTOTYPES_SIXTEEN_SUMS("vpxord", "vdpbf16ps", "zmm");
  });
  return static_cast<double>(num_threads * loops_each * kSums * 32 * 2) / 1e9 / seconds;
}

}  // namespace prototypes
