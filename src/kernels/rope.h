// Interleaved rotary embedding on the last R dims of a vector, plain or with YaRN frequencies (spec/model.md section 4).
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace tessera {

struct RopeParameters {
  int64_t rope_dims = 0;  // R, even
  float theta = 10000;
  bool yarn = false;
  float factor = 1;
  float beta_fast = 32;
  float beta_slow = 1;
  int64_t original_max_position_embeddings = 0;
};
// fp32 frequencies f[i], i < R / 2, computed as the reference computes them (fp32 powers).
std::vector<float> RopeFrequencies(const RopeParameters& parameters);

// angle = fp32(position) * f[i] rounded to fp32; cos and sin of that fp32 value, rounded to fp32. cos, sin: [rope_dims / 2].
void RopeCosSin(int64_t position, const float* frequencies, int64_t rope_dims, float* cos, float* sin) noexcept;

// Rotates pairs (x[2i], x[2i+1]) of the `rope_dims` values at x; inverse turns the other way. One rounding to T.
template <class T>
void RotateInterleaved(T* x, const float* cos, const float* sin, int64_t rope_dims, bool inverse) noexcept;

}  // namespace tessera
