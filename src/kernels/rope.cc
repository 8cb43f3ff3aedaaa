#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "kernels/tier.h"

namespace tessera {

TSR_DECLARE_TIERS(template <class T> void RotatePairs(T* x, const float* cos, const float* sin, int64_t pairs, bool inverse) noexcept;)

namespace {

// Index (not rounded) of the frequency that makes `rotations` full turns within the original context.
double PairOfRotations(const RopeParameters& parameters, double rotations) {
  const double context = static_cast<double>(parameters.original_max_position_embeddings);
  return static_cast<double>(parameters.rope_dims) * std::log(context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(static_cast<double>(parameters.theta)));
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeParameters& parameters) {
  const int64_t dims = parameters.rope_dims;
  TSR_CHECK(dims >= 0 && dims % 2 == 0, "rope_dims {} is not even", dims);
  std::vector<float> frequencies(static_cast<size_t>(dims / 2));
  for (int64_t i = 0; i < dims / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dims);
    // The fp32 power as the double one rounded: it is then the correctly rounded power on every C library.
    const float power = static_cast<float>(std::pow(static_cast<double>(parameters.theta), static_cast<double>(exponent)));
    frequencies[static_cast<size_t>(i)] = 1.0f / power;
  }
  if (!parameters.yarn) return frequencies;

  const double low = std::max(std::floor(PairOfRotations(parameters, parameters.beta_fast)), 0.0);
  const double high = std::min(std::ceil(PairOfRotations(parameters, parameters.beta_slow)), static_cast<double>(dims - 1));
  const float width = static_cast<float>(std::max(high - low, 1e-3));
  for (int64_t i = 0; i < dims / 2; ++i) {
    const float ramp = std::clamp((static_cast<float>(i) - static_cast<float>(low)) / width, 0.0f, 1.0f);
    float& f = frequencies[static_cast<size_t>(i)];
    f = f / parameters.factor * ramp + f * (1.0f - ramp);
  }
  return frequencies;
}

void RopeCosSin(int64_t position, const float* frequencies, int64_t rope_dims, float* cos, float* sin) noexcept {
  // The C library's double functions: angles reach 1e6, where a reduction that is right in fp32 needs more than fp32 words, and a result
  // computed in double and rounded is the nearest fp32 (to 1 in 1e8). It runs once per row and table, not per head.
  for (int64_t i = 0; i < rope_dims / 2; ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    cos[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    sin[i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
}

template <class T>
void RotateInterleaved(T* x, const float* cos, const float* sin, int64_t rope_dims, bool inverse) noexcept {
  TSR_DISPATCH(RotatePairs(x, cos, sin, rope_dims / 2, inverse));
}

template void RotateInterleaved(bf16*, const float*, const float*, int64_t, bool) noexcept;
template void RotateInterleaved(float*, const float*, const float*, int64_t, bool) noexcept;

}  // namespace tessera
