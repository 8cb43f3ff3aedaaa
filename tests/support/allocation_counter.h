// Counts calls of malloc and its relatives in this process. The counting functions replace the C library's in the whole test program, so
// include this in exactly one file of it. Sanitizers own malloc in their builds; there nothing is counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "support/sanitized.h"

namespace tessera::testing {

inline std::atomic<int64_t> num_allocations{0};
inline bool CountsAllocations() { return !kSanitized; }
inline int64_t NumAllocations() { return num_allocations.load(); }

}  // namespace tessera::testing

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
}

#ifndef TESSERA_SANITIZED
extern "C" {
void* malloc(size_t bytes) {
  tessera::testing::num_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  tessera::testing::num_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  tessera::testing::num_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  tessera::testing::num_allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
}
#endif
