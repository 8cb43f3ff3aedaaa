#include "engine/selfcheck.h"

#include <cmath>
#include <cstring>
#include <memory>

#include "core/check.h"
#include "core/random.h"
#include "core/threads.h"
#include "engine/step_runner.h"
#include "kernels/matmul.h"
#include "kernels/tier.h"
#include "tokenizer/token_map.h"

namespace tessera {
namespace {

std::vector<Tier> Tiers() {
  std::vector<Tier> tiers;
  for (const Tier tier : {Tier::kScalar, Tier::kAvx2, Tier::kAvx512})
    if (tier <= BestTier()) tiers.push_back(tier);
  return tiers;
}

// Restores the tier that was active.
class TierGuard {
 public:
  TierGuard() : tier_(ActiveTier()) {}
  ~TierGuard() { SetActiveTier(tier_); }

 private:
  Tier tier_;
};

// One random matrix of a format, its product on the active tier.
struct MatMulCase {
  static constexpr int64_t kRows = 96, kCols = 512, kTokens = 5;
  explicit MatMulCase(Format format) {
    payload.resize(static_cast<size_t>(kRows * FormatRowBytes(format, kCols)));
    scales.resize(static_cast<size_t>(kRows * (kCols / 32)));
    for (size_t i = 0; i < payload.size(); ++i) payload[i] = Byte(1, i);
    // Values of bounded size in every format: no NaN code in e4m3, exponents near 1 in bf16.
    if (format == Format::kE4M3)
      for (uint8_t& code : payload) code = (code & 0x7f) == 0x7f ? 0 : code;
    if (format == Format::kBF16)
      for (size_t i = 1; i < payload.size(); i += 2) payload[i] = static_cast<uint8_t>((payload[i] & 0x80) | 0x3f);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(118 + Byte(2, i) % 8);
    for (int64_t i = 0; i < kTokens * kCols; ++i)
      x.push_back(ToBf16(static_cast<float>(UniformDouble(3, 3, static_cast<uint64_t>(i)) - 0.5)));
    view = {payload.data(),
            format == Format::kBF16 ? nullptr : scales.data(),
            format,
            kRows,
            kCols,
            FormatRowBytes(format, kCols),
            kCols / 32,
            1,
            32,
            0};
  }
  static uint8_t Byte(uint64_t stream, size_t i) { return static_cast<uint8_t>(UniformDouble(3, stream, i) * 256); }

  // Element (row, column) of the matrix, from the scalar definitions of the formats.
  double Weight(int64_t row, int64_t col) const {
    const uint8_t* bytes = view.Row(row);
    if (view.format == Format::kBF16) return BitsToFloat(uint32_t{bytes[2 * col]} << 16 | uint32_t{bytes[2 * col + 1]} << 24);
    const double scale = E8m0ToFloat(view.ScaleRow(row)[col / 32]);
    if (view.format == Format::kE4M3) return E4m3ToFloat(bytes[col]) * scale;
    return E2m1ToFloat(static_cast<uint8_t>(col % 2 == 0 ? bytes[col / 2] & 15 : bytes[col / 2] >> 4)) * scale;
  }

  std::vector<float> Product(int64_t tokens) const {
    std::vector<float> out(static_cast<size_t>(kTokens * kRows));
    Arena scratch("selfcheck", size_t{1} << 24);
    void* packed = scratch.AllocateBytes(static_cast<size_t>(PackedBytes<bf16>(view.format, kTokens, kCols)));
    void* matmul = scratch.AllocateBytes(static_cast<size_t>(MatMulScratchBytes(kCols)));
    for (int64_t first = 0; first < kTokens; first += tokens) {
      const int64_t count = std::min(tokens, kTokens - first);
      PackActivations<bf16>(MakeView(x.data() + first * kCols, count, kCols), nullptr, count, view.format, packed);
      MatMulPacked<bf16, float>(packed, count, view, MakeView(out.data() + first * kRows, count, kRows), matmul);
    }
    return out;
  }

  std::vector<uint8_t> payload, scales;
  std::vector<bf16> x;
  QuantView view;
};

// Every tier against the product in double. A sum of n products in any order errs by at most n * 2^-24 of the sum of their magnitudes.
CheckResult CheckMatMul(Format format, const char* name) {
  const MatMulCase test_case(format);
  double worst = 0;  // error over its bound
  bool same_bits = true;
  for (const Tier tier : Tiers()) {
    SetActiveTier(tier);
    const std::vector<float> together = test_case.Product(MatMulCase::kTokens), alone = test_case.Product(1);
    same_bits = same_bits && std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)) == 0;
    for (int64_t token = 0; token < MatMulCase::kTokens; ++token)
      for (int64_t row = 0; row < MatMulCase::kRows; ++row) {
        double sum = 0, magnitude = 0;
        for (int64_t col = 0; col < MatMulCase::kCols; ++col) {
          const double product = test_case.Weight(row, col) * ToFloat(test_case.x[static_cast<size_t>(token * MatMulCase::kCols + col)]);
          sum += product;
          magnitude += std::fabs(product);
        }
        const double error = std::fabs(together[static_cast<size_t>(token * MatMulCase::kRows + row)] - sum);
        worst = std::max(worst, error / (MatMulCase::kCols * 0x1p-24 * magnitude));
      }
  }
  return {std::string("matmul ") + name, same_bits && worst <= 1,
          fmt::format("{} tiers err by {:.1f} % of what rounding allows, one row and five give {} bits", Tiers().size(), 100 * worst,
                      same_bits ? "equal" : "DIFFERENT")};
}

// Logits of a fixed text's last position.
std::vector<float> ModelLogits(const Model& model, int workers, int32_t chunk) {
  RunnerOptions options;
  options.num_workers = workers;
  options.max_seqs = 1;
  options.prefill_rows = 64;
  options.max_context = std::min<int64_t>(256, model.config().max_position_embeddings);
  StepRunner runner(model, options);
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < 100; ++i)
    ids.push_back(static_cast<int32_t>(UniformDouble(5, 5, i) * static_cast<double>(model.config().vocab_size)));
  for (int64_t first = 0; first < 100; first += chunk) {
    const int32_t rows = static_cast<int32_t>(std::min<int64_t>(chunk, 100 - first));
    runner.step().Clear();
    runner.step().AddSegment(0, first, ids.data() + first, rows, 1);
    runner.Replay();
  }
  return {runner.logits().Row(0), runner.logits().Row(0) + runner.logits().cols};
}

void CheckModel(const std::string& model_dir, std::vector<CheckResult>& results) {
  std::vector<int32_t> token_map;
  if (!ReadModelConfig(model_dir).engram_layer_ids.empty()) token_map = CompressedTokenMap(Tokenizer::Load(model_dir));
  const Model model(model_dir, token_map, ClaimOptions{});
  for (const Tier tier : Tiers()) {
    SetActiveTier(tier);
    const std::vector<float> one = ModelLogits(model, 1, 64);
    const std::vector<float> many = ModelLogits(model, std::max(2, NumUsableCores()), 7);
    const bool same = std::memcmp(one.data(), many.data(), one.size() * sizeof(float)) == 0;
    bool finite = true;
    for (const float logit : one) finite = finite && std::isfinite(logit);
    results.push_back({fmt::format("model on {}", TierName(tier)), same && finite,
                       fmt::format("logits {}, 1 worker in chunks of 64 and {} workers in chunks of 7 give {} bits",
                                   finite ? "finite" : "NOT FINITE", std::max(2, NumUsableCores()), same ? "equal" : "DIFFERENT")});
  }
}

}  // namespace

std::vector<CheckResult> RunSelfcheck(const std::string& model_dir) {
  const TierGuard guard;
  std::vector<CheckResult> results;
  results.push_back(CheckMatMul(Format::kBF16, "bf16"));
  results.push_back(CheckMatMul(Format::kE4M3, "e4m3"));
  results.push_back(CheckMatMul(Format::kE2M1, "e2m1"));
  CheckModel(model_dir, results);
  return results;
}

}  // namespace tessera
