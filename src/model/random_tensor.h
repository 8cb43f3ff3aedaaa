// The values of a random checkpoint: each tensor is a pure function of the seed and its name, so that its bytes do not depend on who draws
// which part, and a model cut to fewer layers is the beginning of the larger one. Scales are chosen so that activations stay near one:
// weights have a deviation of about 1/sqrt(columns), gains are near one, biases and mixes small.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "model/weights.h"

namespace tessera {

class RandomTensors {
 public:
  explicit RandomTensors(uint64_t seed);

  // How the values of a tensor are drawn.
  struct Recipe {
    enum class Kind : uint8_t {
      kNormal,   // mean + deviation * normal, BF16 or F32
      kE4m3,     // normal codes with the deviation kE4m3Deviation
      kBytes,    // packed e2m1: any byte is two codes
      kScale,    // e8m0: scale_base - 1, scale_base twice as often, scale_base + 1
      kExperts,  // I64 rows of distinct expert ids
    };
    Kind kind = Kind::kBytes;
    Dtype dtype = Dtype::kI8;
    uint64_t stream = 0;  // of the name
    int64_t bytes = 0;
    float mean = 0, deviation = 0;
    uint8_t scale_base = 0;
    int64_t num_experts = 0, experts_per_token = 0;
  };
  // `weight` is the tensor that a ".scale" belongs to: the entry before it in the table; ignored for others.
  static Recipe RecipeOf(const ModelConfig& config, const TensorSpec& spec, const TensorSpec* weight);

  // Bytes [begin, end) of the tensor.
  void Fill(const Recipe& recipe, int64_t begin, int64_t end, uint8_t* out) const noexcept;

 private:
  static constexpr int64_t kGrain = 4096;  // bytes of a tensor that are drawn together; a multiple of every element and Philox block
  void FillGrain(const Recipe& recipe, int64_t grain_idx, uint8_t* out) const noexcept;
  void FillExperts(const Recipe& recipe, int64_t begin, uint8_t* out) const noexcept;

  uint64_t seed_;
  std::array<uint8_t, 256> e4m3_codes_;
  std::unique_ptr<std::array<float, 65536>> normals_;  // quantiles of the standard normal distribution
};

}  // namespace tessera
