// What row kernels are tested on, beside the tiers of each_tier.h: every tail length, pointers that are aligned for their element only,
// memory around the row that must not change, values of any magnitude.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "support/each_tier.h"

namespace tessera::testing {

// Longest tail worth testing: twice the widest register and one more.
constexpr int64_t kTailMax = 2 * 16 + 1;

// `count` values of T that begin `shift` elements after an aligned address, between guards that must not change.
template <class T>
class Guarded {
 public:
  Guarded(int64_t count, int64_t shift) : count_(count), begin_(kGuard + shift), all_(static_cast<size_t>(begin_ + count + kGuard)) {
    std::memset(static_cast<void*>(all_.data()), 0x5a, all_.size() * sizeof(T));
  }
  Guarded(const std::vector<T>& values, int64_t shift) : Guarded(static_cast<int64_t>(values.size()), shift) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size() * sizeof(T));
  }
  T* data() { return all_.data() + begin_; }
  std::vector<T> Values() const { return {all_.begin() + begin_, all_.begin() + begin_ + count_}; }
  bool GuardsIntact() const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(all_.data());
    const size_t first = static_cast<size_t>(begin_) * sizeof(T), last = static_cast<size_t>(begin_ + count_) * sizeof(T);
    for (size_t i = 0; i < all_.size() * sizeof(T); ++i)
      if ((i < first || i >= last) && bytes[i] != 0x5a) return false;
    return true;
  }

 private:
  static constexpr int64_t kGuard = 64;
  int64_t count_, begin_;
  std::vector<T> all_;
};

template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Normal values times 2^exponent.
inline std::vector<float> RandomFloats(int64_t count, uint64_t seed, int exponent = 0) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = std::ldexp(normal(generator), exponent);
  return values;
}

template <class T>
std::vector<T> ToT(const std::vector<float>& values) {
  std::vector<T> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) out[i] = FromFloat<T>(values[i]);
  return out;
}
template <class T>
std::vector<float> ToFloats(const std::vector<T>& values) {
  std::vector<float> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) out[i] = ToFloat(values[i]);
  return out;
}

// Half the smallest subnormal of T: the absolute error of one rounding where the relative one no longer holds.
template <class T>
constexpr double kSubnormalUnit = sizeof(T) == 2 ? 0x1p-134 : 0x1p-150;

}  // namespace tessera::testing
