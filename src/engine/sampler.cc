#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/random.h"

namespace tessera {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Streams of core/random.h are numbered by use.
constexpr uint64_t kSamplerStream = 1;
// Lanes of the loops over the vocabulary: independent chains, so that the compiler can keep them in vector registers.
constexpr size_t kLanes = 16;

struct Summary {
  float max = -kInfinity;
  bool valid = true;  // no NaN, no +inf
};

Summary Summarize(std::span<const float> logits) {
  float max[kLanes];
  int bad[kLanes] = {};
  std::fill_n(max, kLanes, -kInfinity);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float x = logits[i + lane];
      max[lane] = x > max[lane] ? x : max[lane];
      bad[lane] |= !(x < kInfinity);
    }
  }
  Summary summary;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    summary.max = std::max(summary.max, max[lane]);
    summary.valid = summary.valid && bad[lane] == 0;
  }
  for (; i < logits.size(); ++i) {
    summary.max = std::max(summary.max, logits[i]);
    summary.valid = summary.valid && logits[i] < kInfinity;
  }
  return summary;
}

// Tokens this many nats below the best are impossible: e^-700 is the end of the range of doubles.
constexpr double kDepthMax = 700;

// e^x for -kDepthMax < x <= 0 within 2 ulp: std::exp without its branches, so that a loop over it is vectorised. x = n ln 2 + r,
// |r| <= ln 2 / 2, the Taylor terms of e^r to r^13 / 13!, whose remainder there is below 2^-57.
inline double Exp(double x) {
  constexpr double kRound = 0x1.8p52;  // adding and subtracting it rounds to an integer, which is left in the low bits
  const double shifted = x * 1.44269504088896338700 + kRound;
  const double n = shifted - kRound;
  const double r = (x - n * 0x1.62e42fefa38p-1) - n * 0x1.ef35793c7673p-45;  // ln 2 in two parts, the first of 42 bits
  double p = 1.0 / 6227020800.0;
  p = ((p * r + 1.0 / 479001600) * r + 1.0 / 39916800) * r + 1.0 / 3628800;
  p = ((p * r + 1.0 / 362880) * r + 1.0 / 40320) * r + 1.0 / 5040;
  p = ((p * r + 1.0 / 720) * r + 1.0 / 120) * r + 1.0 / 24;
  p = (((p * r + 1.0 / 6) * r + 0.5) * r + 1.0) * r + 1.0;
  return p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
}

bool Before(const ScoredIndex& a, const ScoredIndex& b) { return a.score > b.score || (a.score == b.score && a.index < b.index); }

// Candidates are kept by ascending id: scratch.ids[i] with weight scratch.weights[i], relative to the most probable token's 1.
class Sampler {
 public:
  Sampler(std::span<const float> logits, const SamplingOptions& options, float max_logit, SamplerScratch& scratch)
      : logits_(logits),
        options_(options),
        max_logit_(max_logit),
        inverse_temperature_(1.0 / options.temperature),
        weights_(scratch.weights.data()),
        ids_(scratch.ids.data()),
        list_(scratch.list.data()) {}

  SampledToken Draw(double uniform) {
    Collect();
    if (options_.top_p < 1) KeepNucleus();
    if (options_.min_p > 0) KeepIf([&](int64_t i) { return weights_[i] >= options_.min_p; });
    const double total = Total();
    const double target = uniform * total;
    double cumulative = 0;
    int64_t chosen = 0;
    for (; chosen + 1 < count_; ++chosen) {
      cumulative += weights_[chosen];
      if (cumulative > target) break;
    }
    return {ids_[chosen], weights_[chosen] / total};
  }

 private:
  // How far below the best a logit is on the tempered scale, in nats.
  double Depth(float logit) const { return (max_logit_ - static_cast<double>(logit)) * inverse_temperature_; }

  double Total() const {
    double total = 0;
    for (int64_t i = 0; i < count_; ++i) total += weights_[i];
    return total;
  }

  template <class Keep>
  void KeepIf(const Keep& keep) {
    int64_t kept = 0;
    for (int64_t i = 0; i < count_; ++i) {
      if (!keep(i)) continue;
      ids_[kept] = ids_[i];
      weights_[kept++] = weights_[i];
    }
    count_ = kept;
  }

  void Collect() {
    const auto vocab_size = static_cast<int64_t>(logits_.size());
    if (options_.top_k > 0 && options_.top_k < vocab_size) {
      const int64_t num_kept = KeepTopK(list_, 0, logits_.data(), vocab_size, 0, options_.top_k);
      SortedIndices(list_, num_kept, ids_);
      for (int64_t i = 0; i < num_kept; ++i) AddCandidate(ids_[i]);
    } else {
      for (int32_t id = 0; id < vocab_size; ++id) AddCandidate(id);
    }
    for (int64_t i = 0; i < count_; ++i) weights_[i] = Exp(weights_[i]);
  }

  // Without a branch; count_ never passes the place an id is read from.
  void AddCandidate(int32_t id) {
    const double depth = Depth(logits_[static_cast<size_t>(id)]);
    ids_[count_] = id;
    weights_[count_] = -depth;
    count_ += depth < kDepthMax;
  }

  // Weights are summed by bands of equal depth, so that only the band in which the sum crosses top_p has to be sorted.
  void KeepNucleus() {
    constexpr int kNumBands = 1024, kBandsPerNat = 32;
    const auto band_of = [&](int64_t i) {
      return static_cast<int>(std::min(Depth(logits_[static_cast<size_t>(ids_[i])]) * kBandsPerNat, kNumBands - 1.0));
    };
    double band_weights[kNumBands] = {};
    for (int64_t i = 0; i < count_; ++i) band_weights[band_of(i)] += weights_[i];
    const double wanted = static_cast<double>(options_.top_p) * Total();
    int last_band = 0;
    double cumulative = 0;
    while (last_band < kNumBands - 1 && cumulative + band_weights[last_band] < wanted) cumulative += band_weights[last_band++];
    int64_t band_count = 0;
    for (int64_t i = 0; i < count_; ++i)
      if (band_of(i) == last_band) list_[band_count++] = {logits_[static_cast<size_t>(ids_[i])], ids_[i]};
    std::sort(list_, list_ + band_count, Before);
    int64_t kept = 0;
    ScoredIndex last = {kInfinity, 0};
    while (kept < band_count && (kept == 0 || cumulative < wanted)) {
      last = list_[kept++];
      cumulative += Exp(-Depth(last.score));
    }
    KeepIf([&](int64_t i) { return !Before(last, {logits_[static_cast<size_t>(ids_[i])], ids_[i]}); });
  }

  std::span<const float> logits_;
  const SamplingOptions& options_;
  double max_logit_;
  double inverse_temperature_;
  double* weights_;
  int32_t* ids_;
  ScoredIndex* list_;
  int64_t count_ = 0;
};

// Writes the adjusted logits and returns them; the bare ones when the options adjust nothing.
std::span<const float> AdjustLogits(std::span<const float> logits, const TokenCounts& counts, const SamplingOptions& options,
                                    SamplerScratch& scratch) {
  if (options.logit_bias.empty() && !options.penalizes()) return logits;
  const std::span<float> adjusted(scratch.adjusted.data(), logits.size());
  std::copy(logits.begin(), logits.end(), adjusted.begin());
  for (const LogitBias& bias : options.logit_bias) {
    float& logit = adjusted[static_cast<size_t>(bias.token_id)];
    logit = bias.bias == kBanBias ? -kInfinity : logit + bias.bias;
  }
  if (!options.penalizes()) return adjusted;
  for (const TokenCounts::Entry& entry : counts.entries()) {
    float& logit = adjusted[static_cast<size_t>(entry.token_id)];
    logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
    if (entry.num_generated == 0) continue;
    logit -= options.presence_penalty;
    logit -= options.frequency_penalty * static_cast<float>(entry.num_generated);
  }
  return adjusted;
}

// ln of the sum of exp(logit) in two parts, which are subtracted one after the other so that large logits lose nothing.
struct Normalizer {
  double max = std::numeric_limits<double>::quiet_NaN();  // NaN when there is no distribution
  double log_sum = 0;                                     // relative to max

  double LogProbabilityOf(float logit) const { return static_cast<double>(logit) - max - log_sum; }
};

Normalizer Normalize(std::span<const float> logits) {
  const Summary summary = Summarize(logits);
  if (!summary.valid || summary.max == -kInfinity) return {};
  constexpr size_t kChunk = 512;
  double sum = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    double exps[kChunk];
    size_t count = 0;
    for (size_t i = begin; i < std::min(begin + kChunk, logits.size()); ++i) {
      exps[count] = static_cast<double>(logits[i]) - summary.max;
      count += exps[count] > -kDepthMax;
    }
    for (size_t i = 0; i < count; ++i) exps[i] = Exp(exps[i]);
    double chunk_sum = 0;
    for (size_t i = 0; i < count; ++i) chunk_sum += exps[i];
    sum += chunk_sum;
  }
  return {summary.max, std::log(sum)};
}

}  // namespace

std::optional<std::string> SamplingOptionsError(const SamplingOptions& options, int64_t vocab_size) {
  const auto within = [](float x, float low, float high) { return x >= low && x <= high; };  // false for NaN
  if (!within(options.temperature, 0, 1000)) return fmt::format("temperature {} is not between 0 and 1000", options.temperature);
  if (options.top_k < 0) return fmt::format("top_k {} is negative", options.top_k);
  if (!within(options.top_p, 0, 1)) return fmt::format("top_p {} is not between 0 and 1", options.top_p);
  if (!within(options.min_p, 0, 1)) return fmt::format("min_p {} is not between 0 and 1", options.min_p);
  if (!within(options.repetition_penalty, 0.01F, 100))
    return fmt::format("repetition_penalty {} is not between 0.01 and 100", options.repetition_penalty);
  if (!within(options.presence_penalty, -2, 2)) return fmt::format("presence_penalty {} is not between -2 and 2", options.presence_penalty);
  if (!within(options.frequency_penalty, -2, 2))
    return fmt::format("frequency_penalty {} is not between -2 and 2", options.frequency_penalty);
  if (options.top_logprobs < -1 || options.top_logprobs > kTopLogProbsMax)
    return fmt::format("top_logprobs {} is not between 0 and {}", options.top_logprobs, kTopLogProbsMax);
  std::vector<int32_t> ids;
  for (const LogitBias& bias : options.logit_bias) {
    if (bias.token_id < 0 || bias.token_id >= vocab_size)
      return fmt::format("logit_bias: token {} is outside the vocabulary of {}", bias.token_id, vocab_size);
    if (!within(bias.bias, kBanBias, 100))
      return fmt::format("logit_bias: token {}: {} is not between -100 and 100", bias.token_id, bias.bias);
    ids.push_back(bias.token_id);
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end()) return fmt::format("logit_bias: token {} is there twice", *twice);
  return std::nullopt;
}

SamplerScratch::SamplerScratch(int64_t vocab_size)
    : adjusted(static_cast<size_t>(vocab_size)),
      weights(static_cast<size_t>(vocab_size)),
      list(static_cast<size_t>(2 * vocab_size)),
      ids(static_cast<size_t>(vocab_size)) {}

std::optional<SampledToken> Sample(std::span<const float> logits, const TokenCounts& counts, const SamplingOptions& options,
                                   uint64_t position, SamplerScratch& scratch) noexcept {
  TSR_CHECK(!logits.empty() && logits.size() <= scratch.weights.size(), "{} logits, scratch for {}", logits.size(), scratch.weights.size());
  // A NaN among the bare logits is an error even where a bias would ban its token: nothing of such a row can be trusted.
  if (!options.logit_bias.empty() && !Summarize(logits).valid) return std::nullopt;
  const std::span<const float> adjusted = AdjustLogits(logits, counts, options, scratch);
  const Summary summary = Summarize(adjusted);
  if (!summary.valid || summary.max == -kInfinity) return std::nullopt;
  if (options.temperature == 0)
    return SampledToken{static_cast<int32_t>(std::find(adjusted.begin(), adjusted.end(), summary.max) - adjusted.begin()), 1};
  return Sampler(adjusted, options, summary.max, scratch).Draw(UniformDouble(options.seed, kSamplerStream, position));
}

double LogProbability(std::span<const float> logits, int32_t token_id) noexcept {
  TSR_CHECK(token_id >= 0 && static_cast<size_t>(token_id) < logits.size(), "token {} of {}", token_id, logits.size());
  return Normalize(logits).LogProbabilityOf(logits[static_cast<size_t>(token_id)]);
}

LogProbabilities TopLogProbabilities(std::span<const float> logits, int32_t token_id, int num_top, SamplerScratch& scratch) noexcept {
  TSR_CHECK(token_id >= 0 && static_cast<size_t>(token_id) < logits.size(), "token {} of {}", token_id, logits.size());
  TSR_CHECK(num_top >= 0 && num_top <= kTopLogProbsMax, "{} tokens, at most {}", num_top, kTopLogProbsMax);
  const Normalizer normalizer = Normalize(logits);
  LogProbabilities result;
  result.drawn = normalizer.LogProbabilityOf(logits[static_cast<size_t>(token_id)]);
  const auto vocab_size = static_cast<int64_t>(logits.size());
  const int64_t count = std::min<int64_t>(num_top, vocab_size);
  if (count == 0) return result;
  ScoredIndex* list = scratch.list.data();
  result.num_top = static_cast<int>(KeepTopK(list, 0, logits.data(), vocab_size, 0, count));
  std::sort(list, list + result.num_top, Before);
  for (int i = 0; i < result.num_top; ++i) result.top[static_cast<size_t>(i)] = {list[i].index, normalizer.LogProbabilityOf(list[i].score)};
  return result;
}

}  // namespace tessera
