// Owns the memory of plans and state: open while things are built, then sealed. An allocation after sealing aborts, which is the proof
// that a replay cannot allocate. A size that is not known beforehand is either measured (the same allocations in a measuring arena, which
// owns nothing) or left to a growing arena, so that no address space is reserved on suspicion: hosts limit it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/view.h"

namespace tessera {

class Arena {
 public:
  static constexpr size_t kAlignment = 64;  // a cache line and a zmm register

  // Reserves `capacity_bytes` of zeroed address space; pages are paid for as they are touched. Throws Error when the host refuses.
  Arena(std::string name, size_t capacity_bytes);
  // Counts only: the address it gives out, always the same, is one that nothing can be read from or written to.
  static Arena Measuring(std::string name) { return {Kind::kMeasuring, std::move(name)}; }
  // Adds blocks of at least `kBlockBytes` as they are needed; Error when the host refuses one. It cannot be rewound.
  static Arena Growing(std::string name) { return {Kind::kGrowing, std::move(name)}; }
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* AllocateBytes(size_t bytes);  // aligned to kAlignment; aborts when sealed or, with a fixed capacity, full
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
  uint8_t* base() { return blocks_.empty() ? nullptr : blocks_.front().data; }  // [capacity_bytes] where the capacity is fixed
  // Forget what was allocated after `mark` (a former used_bytes()): plans of smaller buckets alias the prefix of the largest.
  void Rewind(size_t mark);

 private:
  static constexpr size_t kBlockBytes = size_t{1} << 20;
  enum class Kind { kFixed, kMeasuring, kGrowing };
  struct Block {
    uint8_t* data = nullptr;
    size_t bytes = 0;
  };
  Arena(Kind kind, std::string name) : kind_(kind), name_(std::move(name)) {}
  void AddBlock(size_t bytes);

  Kind kind_ = Kind::kFixed;
  std::string name_;
  std::vector<Block> blocks_;
  size_t capacity_ = 0;    // sum of the blocks
  size_t used_ = 0;        // by allocations
  size_t block_used_ = 0;  // of the last block
  bool sealed_ = false;
};

}  // namespace tessera
