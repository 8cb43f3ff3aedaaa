// Cuts a worker's scratch into typed pieces, the same way when its size is computed (null base) and when it is used.
#pragma once

#include <cstdint>

namespace tessera {

class ScratchCutter {
 public:
  explicit ScratchCutter(uint8_t* base) : base_(base) {}

  template <class U>
  U* Take(int64_t count) {
    uint8_t* place = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (count * static_cast<int64_t>(sizeof(U)) + 63) / 64 * 64;
    return reinterpret_cast<U*>(place);
  }
  int64_t used_bytes() const { return used_; }

 private:
  uint8_t* base_;
  int64_t used_ = 0;
};

}  // namespace tessera
