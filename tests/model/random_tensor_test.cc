#include "model/random_tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "model/synth_shape.h"

namespace tessera {
namespace {

using Recipe = RandomTensors::Recipe;

const RandomTensors& Tensors() {
  static const RandomTensors tensors(7);
  return tensors;
}

std::vector<uint8_t> BytesOf(const Recipe& recipe, const RandomTensors& tensors = Tensors()) {
  std::vector<uint8_t> bytes(static_cast<size_t>(recipe.bytes));
  tensors.Fill(recipe, 0, recipe.bytes, bytes.data());
  return bytes;
}

// The entries of a small model's table, with the recipe of each.
struct Entry {
  TensorSpec spec, weight;
  Recipe recipe;
};
std::vector<Entry> Entries(const char* like) {
  const ModelConfig config = ParseModelConfig(SynthConfigJson({.like = like}), like);
  const std::vector<TensorSpec> table = TensorTable(config);
  std::vector<Entry> entries;
  for (size_t i = 0; i < table.size(); ++i) {
    const TensorSpec& before = table[i == 0 ? 0 : i - 1];
    entries.push_back({table[i], before, RandomTensors::RecipeOf(config, table[i], &before)});
  }
  return entries;
}
Entry Find(const char* like, const std::string& name) {
  for (Entry& entry : Entries(like))
    if (entry.spec.name == name) return entry;
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

std::vector<double> Values(const Recipe& recipe) {
  const std::vector<uint8_t> bytes = BytesOf(recipe);
  std::vector<double> values;
  for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(DtypeBytes(recipe.dtype))) {
    float wide;
    bf16 narrow;
    std::memcpy(&wide, &bytes[i], recipe.dtype == Dtype::kF32 ? 4 : 1);
    std::memcpy(&narrow, &bytes[i], recipe.dtype == Dtype::kBF16 ? 2 : 1);
    values.push_back(recipe.dtype == Dtype::kF32 ? wide : recipe.dtype == Dtype::kBF16 ? ToFloat(narrow) : E4m3ToFloat(bytes[i]));
  }
  return values;
}
double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}
double Deviation(const std::vector<double>& values) {
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(RandomTensorTest, EveryPartIsThatOfTheWhole) {
  for (const char* like : {"tiny-v4", "tiny-v4.1"}) {
    std::set<std::pair<int, Dtype>> seen;
    for (const Entry& entry : Entries(like)) {
      if (!seen.insert({static_cast<int>(entry.recipe.kind), entry.recipe.dtype}).second) continue;
      Recipe recipe = entry.recipe;
      recipe.bytes = 3 * 4096 + 24 * 5;  // whole rows of every kind, a tail, several grains
      const std::vector<uint8_t> whole = BytesOf(recipe);
      for (const int64_t step : {1, 7, 96, 4095, 4096, 5000}) {
        std::vector<uint8_t> parts(whole.size());
        for (int64_t begin = 0; begin < recipe.bytes; begin += step)
          Tensors().Fill(recipe, begin, std::min(begin + step, recipe.bytes), parts.data() + begin);
        EXPECT_TRUE(whole == parts) << entry.spec.name << " in parts of " << step;
      }
    }
    EXPECT_GE(seen.size(), 5u) << like;
  }
}

TEST(RandomTensorTest, SeedAndNameMatter) {
  const Entry entry = Find("tiny-v4", "layers.2.attn.wq_a.weight");
  const Entry other = Find("tiny-v4", "layers.3.attn.wq_a.weight");
  EXPECT_EQ(BytesOf(entry.recipe), BytesOf(entry.recipe, RandomTensors(7)));
  EXPECT_NE(BytesOf(entry.recipe), BytesOf(entry.recipe, RandomTensors(8)));
  EXPECT_NE(BytesOf(entry.recipe), BytesOf(other.recipe));
}

TEST(RandomTensorTest, NoCodeIsNan) {
  for (const char* like : {"tiny-v4", "tiny-v4.1"}) {
    for (const Entry& entry : Entries(like)) {
      const std::vector<uint8_t> bytes = BytesOf(entry.recipe);
      if (entry.recipe.kind == Recipe::Kind::kScale) {
        // One deviation of weights of 32 ... 2^17 columns and their codes: 2^-16 to 1.
        const auto [low, high] = std::minmax_element(bytes.begin(), bytes.end());
        EXPECT_TRUE(*low > 127 - 20 && *high < 127 + 4) << entry.spec.name << ' ' << int{*low} << ' ' << int{*high};
      } else if (entry.recipe.kind == Recipe::Kind::kE4m3) {
        EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](uint8_t code) { return std::fabs(E4m3ToFloat(code)) <= 128; }))
            << entry.spec.name;
      } else if (entry.recipe.kind == Recipe::Kind::kNormal) {
        const std::vector<double> values = Values(entry.recipe);
        EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](double value) { return std::fabs(value) <= 5; })) << entry.spec.name;
      }
    }
  }
}

// With n = 65,536 samples the error of a deviation is 0.28 % of it (1 / sqrt(2 n)) and that of the mean 0.4 %: 2 % is beyond chance; the
// mix has 24,576.
TEST(RandomTensorTest, MatricesHaveTheDeviationThatKeepsActivationsAtOne) {
  const Entry embed = Find("tiny-v4", "embed.weight");
  EXPECT_NEAR(Deviation(Values(embed.recipe)), 1, 0.02);
  EXPECT_NEAR(Mean(Values(embed.recipe)), 0, 0.02);
  const Entry head = Find("tiny-v4", "head.weight");  // 256 columns
  EXPECT_NEAR(Deviation(Values(head.recipe)) * 16, 1, 0.02);
  const Entry mix = Find("tiny-v4", "layers.0.hc_attn_fn");  // 1024 columns, 24,576 values
  EXPECT_NEAR(Deviation(Values(mix.recipe)) * 32, 1, 0.03);
}

TEST(RandomTensorTest, CodesAndScalesTogetherHaveIt) {
  for (const char* name : {"layers.0.attn.wq_b", "layers.0.attn.wo_a", "layers.0.ffn.experts.3.w1", "layers.0.ffn.experts.3.w2"}) {
    const Entry weight = Find("tiny-v4", std::string(name) + ".weight");
    const Entry scale = Find("tiny-v4", std::string(name) + ".scale");
    EXPECT_EQ(scale.weight.name, weight.spec.name);
    const bool packed = weight.recipe.dtype == Dtype::kI8;
    std::vector<double> codes;
    for (const uint8_t byte : BytesOf(weight.recipe)) {
      if (packed) {
        codes.push_back(E2m1ToFloat(byte & 15));
        codes.push_back(E2m1ToFloat(byte >> 4));
      } else {
        codes.push_back(E4m3ToFloat(byte));
      }
    }
    // Scales are few, so their mean square is that of their distribution: base / 2, base, base, base * 2.
    const double scale_square = std::pow(std::ldexp(1.0, scale.recipe.scale_base - 127), 2) * (0.25 + 1 + 1 + 4) / 4;
    const double columns = static_cast<double>(weight.spec.shape.back() * (packed ? 2 : 1));
    const double deviation = Deviation(codes) * std::sqrt(scale_square * columns);
    EXPECT_GE(deviation, 0.98 / std::sqrt(2)) << name;  // the nearest power of two, and the samples' 2 %
    EXPECT_LE(deviation, 1.02 * std::sqrt(2)) << name;
  }
}

TEST(RandomTensorTest, GainsAreNearOneAndBiasesSmall) {
  for (const char* name : {"norm.weight", "layers.2.attn.kv_norm.weight", "layers.2.attn.compressor.norm.weight"})
    for (const double value : Values(Find("tiny-v4.1", name).recipe)) EXPECT_NEAR(value, 1, 0.5) << name;
  for (const double value : Values(Find("tiny-v4.1", "layers.1.engram.q_weight").recipe)) EXPECT_NEAR(value, 1, 0.5);
  for (const double value : Values(Find("tiny-v4.1", "layers.1.ffn.gate.bias").recipe)) EXPECT_NEAR(value, 0, 0.25);
  for (const double value : Values(Find("tiny-v4.1", "layers.1.hc_ffn_scale").recipe)) EXPECT_NEAR(value, 0.5, 0.25);
}

TEST(RandomTensorTest, TokensHaveDistinctExpertsAndAllExpertsAreUsed) {
  const Recipe recipe = Find("tiny-v4", "layers.1.ffn.gate.tid2eid").recipe;
  const std::vector<uint8_t> bytes = BytesOf(recipe);
  ASSERT_EQ(bytes.size(), 512u * 3 * 8);
  std::vector<int> uses(16);
  for (size_t token = 0; token < 512; ++token) {
    int64_t ids[3];
    std::memcpy(ids, &bytes[token * 24], 24);
    EXPECT_EQ(std::set<int64_t>(ids, ids + 3).size(), 3u) << token;
    for (const int64_t id : ids) {
      ASSERT_TRUE(id >= 0 && id < 16) << id;
      ++uses[static_cast<size_t>(id)];
    }
  }
  // 1536 draws over 16 experts: 96 each, deviation 9; 50 is five of them.
  for (const int count : uses) EXPECT_NEAR(count, 96, 50);
}

}  // namespace
}  // namespace tessera
