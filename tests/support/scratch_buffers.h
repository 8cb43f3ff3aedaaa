// Worker scratch for tests that run an op without a plan set.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/arena.h"

namespace tessera::testing {

class ScratchBuffers {
 public:
  ScratchBuffers(int num_workers, size_t bytes) {
    for (int i = 0; i < num_workers; ++i) {
      arenas_.push_back(std::make_unique<Arena>("test scratch", bytes + Arena::kAlignment));
      pointers_.push_back(arenas_.back()->Allocate<uint8_t>(static_cast<int64_t>(bytes)));
    }
  }
  std::span<uint8_t* const> pointers() const { return pointers_; }

 private:
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<uint8_t*> pointers_;
};

}  // namespace tessera::testing
