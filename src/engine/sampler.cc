#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/random.h"

namespace tessera {
namespace {

// Streams of core/random.h are numbered by use.
constexpr uint64_t kSamplerStream = 1;
// Tokens looked at first for top_p; it rarely needs more.
constexpr int64_t kNucleusGuess = 1024;

// The first of the highest logits; nullopt where there is no distribution.
std::optional<int32_t> Greedy(std::span<const float> logits) {
  float max = -std::numeric_limits<float>::infinity();
  int32_t best = 0;
  bool valid = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    valid = valid && logits[i] < std::numeric_limits<float>::infinity();  // false for NaN
    if (logits[i] > max) max = logits[i], best = static_cast<int32_t>(i);
  }
  if (!valid || max == -std::numeric_limits<float>::infinity()) return std::nullopt;
  return best;
}

bool Before(const ScoredIndex& a, const ScoredIndex& b) { return a.score > b.score || (a.score == b.score && a.index < b.index); }

class Sampler {
 public:
  Sampler(std::span<const float> logits, const SamplingOptions& options, float max_logit, SamplerScratch& scratch)
      : logits_(logits), options_(options), max_logit_(max_logit), scratch_(scratch) {}

  SampledToken Draw(double uniform) {
    const int64_t num_kept = Filter();
    double total = 0;
    for (int64_t i = 0; i < num_kept; ++i) total += scratch_.weights[Id(i)];
    const double target = uniform * total;
    double cumulative = 0;
    size_t chosen = Id(0);
    for (int64_t i = 0; i < num_kept; ++i) {
      const double weight = scratch_.weights[Id(i)];
      if (weight > 0) chosen = Id(i);  // stays on the last possible token where rounding leaves the target at the end
      cumulative += weight;
      if (cumulative > target) break;
    }
    return {static_cast<int32_t>(chosen), scratch_.weights[chosen] / total};
  }

 private:
  size_t Id(int64_t i) const { return static_cast<size_t>(scratch_.ids[static_cast<size_t>(i)]); }
  // Relative to the most probable token, whose weight is 1.
  double Weight(float logit) const { return std::exp((static_cast<double>(logit) - max_logit_) / options_.temperature); }

  // scratch.ids <- the tokens kept, ascending, with their weights in scratch.weights; returns how many, at least one.
  int64_t Filter() {
    const auto vocab_size = static_cast<int64_t>(logits_.size());
    std::vector<int32_t>& ids = scratch_.ids;
    int64_t num_kept = 0;
    if (options_.top_k > 0 && options_.top_k < vocab_size) {
      num_kept = KeepTopK(scratch_.list.data(), 0, logits_.data(), vocab_size, 0, options_.top_k);
      SortedIndices(scratch_.list.data(), num_kept, ids.data());
    } else {
      for (int32_t id = 0; id < vocab_size; ++id)
        if (logits_[static_cast<size_t>(id)] > -std::numeric_limits<float>::infinity()) ids[static_cast<size_t>(num_kept++)] = id;
    }
    for (int64_t i = 0; i < num_kept; ++i) scratch_.weights[Id(i)] = Weight(logits_[Id(i)]);
    if (options_.top_p < 1) num_kept = KeepNucleus(num_kept);
    if (options_.min_p > 0) {
      const auto improbable = [&](int32_t id) { return scratch_.weights[static_cast<size_t>(id)] < options_.min_p; };
      num_kept = std::remove_if(ids.begin(), ids.begin() + num_kept, improbable) - ids.begin();
    }
    return num_kept;
  }

  int64_t KeepNucleus(int64_t num_candidates) {
    double total = 0;
    for (int64_t i = 0; i < num_candidates; ++i) total += scratch_.weights[Id(i)];
    const double wanted = static_cast<double>(options_.top_p) * total;
    ScoredIndex* list = scratch_.list.data();
    for (int64_t guess = std::min(kNucleusGuess, num_candidates);; guess = std::min(8 * guess, num_candidates)) {
      for (int64_t i = 0; i < num_candidates; ++i) list[i] = {logits_[Id(i)], static_cast<int32_t>(Id(i))};
      if (guess < num_candidates) std::nth_element(list, list + guess, list + num_candidates, Before);
      std::sort(list, list + guess, Before);
      double cumulative = 0;
      for (int64_t i = 0; i < guess; ++i) {
        cumulative += scratch_.weights[static_cast<size_t>(list[i].index)];
        // Summed in another order, all of them may stay a rounding short of what is wanted.
        if (cumulative < wanted && i + 1 < num_candidates) continue;
        SortedIndices(list, i + 1, scratch_.ids.data());
        return i + 1;
      }
    }
  }

  std::span<const float> logits_;
  const SamplingOptions& options_;
  double max_logit_;
  SamplerScratch& scratch_;
};

}  // namespace

std::optional<std::string> SamplingOptionsError(const SamplingOptions& options) {
  const auto within = [](float x, float low, float high) { return x >= low && x <= high; };  // false for NaN
  if (!within(options.temperature, 0, 1000)) return fmt::format("temperature {} is not between 0 and 1000", options.temperature);
  if (options.top_k < 0) return fmt::format("top_k {} is negative", options.top_k);
  if (!within(options.top_p, 0, 1)) return fmt::format("top_p {} is not between 0 and 1", options.top_p);
  if (!within(options.min_p, 0, 1)) return fmt::format("min_p {} is not between 0 and 1", options.min_p);
  return std::nullopt;
}

SamplerScratch::SamplerScratch(int64_t vocab_size)
    : weights(static_cast<size_t>(vocab_size)), list(static_cast<size_t>(2 * vocab_size)), ids(static_cast<size_t>(vocab_size)) {}

std::optional<SampledToken> Sample(std::span<const float> logits, const SamplingOptions& options, uint64_t position,
                                   SamplerScratch& scratch) noexcept {
  TSR_CHECK(!logits.empty() && logits.size() <= scratch.weights.size(), "{} logits, scratch for {}", logits.size(), scratch.weights.size());
  const std::optional<int32_t> best = Greedy(logits);
  if (!best) return std::nullopt;
  if (options.temperature == 0) return SampledToken{*best, 1};
  return Sampler(logits, options, logits[static_cast<size_t>(*best)], scratch).Draw(UniformDouble(options.seed, kSamplerStream, position));
}

double LogProbability(std::span<const float> logits, int32_t token_id) noexcept {
  TSR_CHECK(token_id >= 0 && static_cast<size_t>(token_id) < logits.size(), "token {} of {}", token_id, logits.size());
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - max);
  return logits[static_cast<size_t>(token_id)] - max - std::log(sum);
}

}  // namespace tessera
