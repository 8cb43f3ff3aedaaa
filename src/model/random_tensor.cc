#include "model/random_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "core/check.h"
#include "core/hash.h"
#include "core/random.h"
#include "kernels/random_words.h"
#include "moe/router.h"

namespace tessera {
namespace {

// Of normal codes: the largest of 256 quantiles, 2.9 deviations, is 115, far from 448, and the smallest is still a normal number.
constexpr double kE4m3Deviation = 40;
// Of a uniform e2m1 code: sqrt of the mean of {0, .25, 1, 2.25, 4, 9, 16, 36} / 8.
constexpr double kE2m1Deviation = 2.926;
// A scale is half, once, once or twice its base: sqrt of the mean of {.25, 1, 1, 4}.
constexpr double kScaleDeviation = 1.25;

// FNV-1a of a tensor's name.
uint64_t StreamOf(std::string_view name) {
  Hasher hasher;
  hasher.Add(name);
  return hasher.value();
}

// The x >= 0 below which a normal value lies with probability p: Newton's method from `start` on, which is close.
double NormalQuantile(double p, double start) {
  double x = start;
  for (int i = 0; i < 8; ++i) {
    const double above = 0.5 * std::erfc(x / std::numbers::sqrt2) - (1 - p);
    x += above * std::sqrt(2 * std::numbers::pi) * std::exp(0.5 * x * x);
  }
  return x;
}

// Quantiles at the middles of `count` equal parts, the lower half mirrored: symmetric to the bit.
template <class Store>
void ForNormalQuantiles(int count, Store&& store) {
  double x = 0;
  for (int i = count / 2; i < count; ++i) {
    x = NormalQuantile((i + 0.5) / count, x);
    store(i, x);
    store(count - 1 - i, -x);
  }
}

float DeviationOf(const TensorSpec& spec) {
  const std::string_view name = spec.name;
  if (name.ends_with("embed.weight")) return 1;
  if (name.ends_with(".bias") || name.ends_with(".bias_vl")) return 0.05f;  // among router scores that differ by a few tenths
  if (name.ends_with(".ape")) return 0.5f;
  if (spec.shape.size() > 1) return static_cast<float>(1 / std::sqrt(static_cast<double>(spec.shape.back())));
  return name.ends_with("_scale") ? 0.05f : 0.5f;  // of hyper-connections; attention sinks
}

// Gains are the vectors in BF16, and Engram's two matrices of them.
bool IsGain(const TensorSpec& spec) {
  const bool is_vector = spec.shape.size() == 1 && spec.dtypes.front() == Dtype::kBF16;
  return is_vector || spec.name.ends_with("engram.q_weight") || spec.name.ends_with("engram.k_weight");
}

// The scale byte with which codes of `code_deviation` get the deviation `target`, to the nearest power of two.
uint8_t ScaleBase(double target, double code_deviation) {
  return static_cast<uint8_t>(127 + std::lround(std::log2(target / (code_deviation * kScaleDeviation))));
}

}  // namespace

RandomTensors::RandomTensors(uint64_t seed) : seed_(seed), normals_(std::make_unique<std::array<float, 65536>>()) {
  ForNormalQuantiles(65536, [&](int i, double x) { (*normals_)[static_cast<size_t>(i)] = static_cast<float>(x); });
  ForNormalQuantiles(256,
                     [&](int i, double x) { e4m3_codes_[static_cast<size_t>(i)] = FloatToE4m3(static_cast<float>(x * kE4m3Deviation)); });
}

RandomTensors::Recipe RandomTensors::RecipeOf(const ModelConfig& config, const TensorSpec& spec, const TensorSpec* weight) {
  Recipe recipe;
  recipe.dtype = spec.dtypes.front();
  recipe.stream = StreamOf(spec.name);
  recipe.bytes = TensorBytes(spec);
  switch (recipe.dtype) {
    case Dtype::kF8E4M3:
      recipe.kind = Recipe::Kind::kE4m3;
      return recipe;
    case Dtype::kF8E8M0: {
      TSR_CHECK(weight != nullptr && spec.name.ends_with(".scale"), "{} follows no weight", spec.name);
      const bool packed = weight->dtypes.front() == Dtype::kI8;
      const double target =
          weight->name.ends_with("embed.weight") ? 1 : 1 / std::sqrt(static_cast<double>(weight->shape.back() * (packed ? 2 : 1)));
      recipe.kind = Recipe::Kind::kScale;
      recipe.scale_base = ScaleBase(target, packed ? kE2m1Deviation : kE4m3Deviation);
      return recipe;
    }
    case Dtype::kI64:
      recipe.kind = Recipe::Kind::kExperts;
      recipe.num_experts = config.n_routed_experts;
      recipe.experts_per_token = config.num_experts_per_tok;
      return recipe;
    case Dtype::kBF16:
    case Dtype::kF32:
      recipe.kind = Recipe::Kind::kNormal;
      recipe.mean = IsGain(spec) ? 1.0f : spec.shape.size() == 1 && spec.name.ends_with("_scale") ? 0.5f : 0.0f;
      recipe.deviation = IsGain(spec) ? 0.1f : DeviationOf(spec);
      return recipe;
    default:
      TSR_CHECK(recipe.dtype == Dtype::kI8, "{}: no recipe for {}", spec.name, DtypeName(recipe.dtype));
      return recipe;
  }
}

void RandomTensors::Fill(const Recipe& recipe, int64_t begin, int64_t end, uint8_t* out) const noexcept {
  TSR_CHECK(begin >= 0 && begin <= end && end <= recipe.bytes, "bytes {} to {} of {}", begin, end, recipe.bytes);
  alignas(64) uint8_t grain[kGrain];
  while (begin < end) {
    const int64_t grain_idx = begin / kGrain;
    const int64_t grain_begin = grain_idx * kGrain;
    const int64_t count = std::min(end, grain_begin + kGrain) - begin;
    if (count == kGrain) {
      FillGrain(recipe, grain_idx, out);
    } else {
      FillGrain(recipe, grain_idx, grain);
      std::memcpy(out, grain + (begin - grain_begin), static_cast<size_t>(count));
    }
    begin += count;
    out += count;
  }
}

void RandomTensors::FillGrain(const Recipe& recipe, int64_t grain_idx, uint8_t* out) const noexcept {
  if (recipe.kind == Recipe::Kind::kExperts) return FillExperts(recipe, grain_idx * kGrain, out);
  // A random byte for each byte of codes and BF16, two for an F32.
  const bool is_f32 = recipe.dtype == Dtype::kF32;
  const int64_t num_random = is_f32 ? kGrain / 2 : kGrain;
  alignas(64) uint32_t words[kGrain / 4];
  FillRandomWords(seed_, recipe.stream, static_cast<uint64_t>(grain_idx * num_random / 16), {words, static_cast<size_t>(num_random / 4)});
  uint8_t bytes[kGrain];
  std::memcpy(bytes, words, static_cast<size_t>(num_random));
  switch (recipe.kind) {
    case Recipe::Kind::kE4m3:
      for (int64_t i = 0; i < kGrain; ++i) out[i] = e4m3_codes_[bytes[i]];
      return;
    case Recipe::Kind::kScale:
      for (int64_t i = 0; i < kGrain; ++i) {
        const int choice = bytes[i] & 3;
        out[i] = static_cast<uint8_t>(recipe.scale_base + (choice == 3 ? 1 : choice == 0 ? -1 : 0));
      }
      return;
    case Recipe::Kind::kNormal:
      for (int64_t i = 0; i < num_random / 2; ++i) {
        uint16_t index;
        std::memcpy(&index, bytes + 2 * i, 2);
        const float value = recipe.mean + recipe.deviation * (*normals_)[index];
        const bf16 narrow = ToBf16(value);
        if (is_f32)
          std::memcpy(out + 4 * i, &value, 4);
        else
          std::memcpy(out + 2 * i, &narrow, 2);
      }
      return;
    case Recipe::Kind::kBytes:
    case Recipe::Kind::kExperts:
      std::memcpy(out, bytes, kGrain);
  }
}

// Element by element; a row of `experts_per_token` ids is drawn without replacement from a block of counters of its own.
void RandomTensors::FillExperts(const Recipe& recipe, int64_t begin, uint8_t* out) const noexcept {
  int64_t drawn_row = -1;
  int64_t ids[kExpertsPerTokenMax];
  for (int64_t i = 0; i < kGrain / 8; ++i) {
    const int64_t row = (begin / 8 + i) / recipe.experts_per_token;
    const int64_t col = (begin / 8 + i) % recipe.experts_per_token;
    if (row != drawn_row) {
      for (int64_t k = 0; k < recipe.experts_per_token; ++k) {
        const uint64_t counter = static_cast<uint64_t>(row * kExpertsPerTokenMax + k);
        // The value-th of those not drawn yet: it moves up by one for each smaller id that was.
        int64_t value = static_cast<int64_t>(UniformDouble(seed_, recipe.stream, counter) * static_cast<double>(recipe.num_experts - k));
        int64_t sorted[kExpertsPerTokenMax];
        std::copy_n(ids, k, sorted);
        std::sort(sorted, sorted + k);
        for (int64_t j = 0; j < k; ++j) value += value >= sorted[j] ? 1 : 0;
        ids[k] = value;
      }
      drawn_row = row;
    }
    std::memcpy(out + 8 * i, &ids[col], 8);
  }
}

}  // namespace tessera
