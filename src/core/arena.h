// Owns the memory of plans and state: open while things are built, then sealed. An allocation after sealing aborts, which is the proof
// that a replay cannot allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/view.h"

namespace tessera {

class Arena {
 public:
  static constexpr size_t kAlignment = 64;  // a cache line and a zmm register

  // Reserves `capacity_bytes` of zeroed address space; pages are paid for as they are touched. Throws Error when the host refuses.
  Arena(std::string name, size_t capacity_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* AllocateBytes(size_t bytes);  // aligned to kAlignment; aborts when sealed or full
  template <class T>
  T* Allocate(int64_t count) {
    return static_cast<T*>(AllocateBytes(static_cast<size_t>(count) * sizeof(T)));
  }
  template <class T>
  View<T> AllocateView(int64_t rows, int64_t cols) {
    return MakeView(Allocate<T>(rows * cols), rows, cols);
  }

  void Seal() { sealed_ = true; }
  bool sealed() const { return sealed_; }
  size_t used_bytes() const { return used_; }
  size_t capacity_bytes() const { return capacity_; }
  uint8_t* base() { return base_; }  // [capacity_bytes]
  // Forget what was allocated after `mark` (a former used_bytes()): plans of smaller buckets alias the prefix of the largest.
  void Rewind(size_t mark);

 private:
  std::string name_;
  uint8_t* base_ = nullptr;
  size_t capacity_ = 0;
  size_t used_ = 0;
  bool sealed_ = false;
};

}  // namespace tessera
