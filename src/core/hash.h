// A 64-bit FNV-1a hash for naming things: checkpoints, tokenizers. Not for untrusted keys.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tessera {

class Hasher {
 public:
  void Add(std::span<const uint8_t> bytes) {
    for (const uint8_t byte : bytes) state_ = (state_ ^ byte) * 0x100000001b3u;
  }
  void Add(std::string_view text) { Add(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size())); }
  void Add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) state_ = (state_ ^ (number >> shift & 0xff)) * 0x100000001b3u;
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325u;
};

}  // namespace tessera
