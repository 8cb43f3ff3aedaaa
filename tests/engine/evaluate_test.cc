// Parity: the whole forward pass against the independent references of tests/golden, layer by layer.
#include "engine/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/json.h"
#include "engine/sampler.h"
#include "support/golden_model.h"
#include "support/sanitized.h"

namespace tessera {
namespace {

using testing::ReadTensors;
using testing::Tensor;

// Tolerances of tests/golden: logits (standard deviation 3) within 5e-2 at most and 2e-3 on average; streams likewise.
constexpr double kLogitMax = 5e-2, kLogitMean = 2e-3;

struct Error2 {
  double max = 0, sum = 0;
  int64_t count = 0;
  void Add(double a, double b) {
    const double difference = std::fabs(a - b);
    max = std::isnan(difference) ? INFINITY : std::max(max, difference);
    sum += difference;
    ++count;
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

// One golden checkpoint evaluated under --numerics fp32 with everything recorded, position by position.
class GoldenModel {
 public:
  explicit GoldenModel(const std::string& name)
      : model_(testing::OpenModel(testing::GoldenDir(name))), golden_(ReadTensors("tests/golden/" + name + "/vectors/golden.safetensors")) {
    RunnerOptions options;
    options.numerics = Numerics::kFp32;
    options.num_workers = 2;
    options.max_seqs = 1;
    options.max_context = 512;
    options.prefill_rows = 64;  // several chunks for the longer prompts
    options.record_layers = true;
    runner_ = std::make_unique<StepRunner>(*model_, options);
  }

  struct Row {
    std::vector<float> logits;
    std::vector<std::vector<float>> streams;
    std::vector<std::vector<int32_t>> experts;
    std::vector<std::vector<float>> expert_weights;
    std::vector<std::vector<int64_t>> selected, candidates, engram_rows;
  };
  std::vector<Row> Run(const std::vector<int32_t>& ids) {
    std::vector<Row> rows(ids.size());
    Evaluate(*runner_, ids, {}, [&](int64_t first, View<const float> logits, const StepRecord* record) {
      for (int64_t i = 0; i < logits.rows; ++i) Copy(first + i, i, logits, *record, rows[static_cast<size_t>(first + i)]);
    });
    return rows;
  }
  bool Has(const std::string& name) const { return golden_.count(name) > 0; }
  const Tensor& At(const std::string& name) const { return golden_.at(name); }
  const ModelConfig& config() const { return model_->config(); }
  StepRunner& runner() { return *runner_; }

 private:
  void Copy(int64_t token, int64_t i, View<const float> logits, const StepRecord& record, Row& row) const {
    row.logits.assign(logits.Row(i), logits.Row(i) + logits.cols);
    for (size_t l = 0; l < record.layers.size(); ++l) {
      const LayerRecord& layer = record.layers[l];
      row.streams.emplace_back(layer.streams.Row(i), layer.streams.Row(i) + layer.streams.cols);
      row.experts.emplace_back(layer.expert_ids.Row(i), layer.expert_ids.Row(i) + layer.expert_ids.cols);
      row.expert_weights.emplace_back(layer.expert_weights.Row(i), layer.expert_weights.Row(i) + layer.expert_weights.cols);
      std::vector<int64_t> selected, candidates, engram;
      if (layer.selected_counts != nullptr) {
        selected.assign(layer.selected.Row(i), layer.selected.Row(i) + layer.selected_counts[i]);
      } else if (config().compress_ratios[l] > 0) {
        for (int64_t entry = 0; entry < (token + 1) / config().compress_ratios[l]; ++entry) selected.push_back(entry);
      }
      if (layer.candidate_counts != nullptr)
        for (int32_t j = 0; j < layer.candidate_counts[i]; ++j)
          for (int64_t entry = layer.candidates.Row(i)[j] * config().candidate_block_size;
               entry < std::min<int64_t>((layer.candidates.Row(i)[j] + 1) * config().candidate_block_size,
                                         (token + 1) / config().compress_ratios[l]);
               ++entry)
            candidates.push_back(entry);
      if (layer.engram_rows.data != nullptr) engram.assign(layer.engram_rows.Row(i), layer.engram_rows.Row(i) + layer.engram_rows.cols);
      row.selected.push_back(std::move(selected));
      row.candidates.push_back(std::move(candidates));
      row.engram_rows.push_back(std::move(engram));
    }
  }

  std::unique_ptr<Model> model_;
  std::map<std::string, Tensor> golden_;
  std::unique_ptr<StepRunner> runner_;
};

// Row `i` of an integer tensor [rows, width] without its -1 padding.
std::vector<int64_t> IdRow(const Tensor& tensor, int64_t i) {
  const int64_t width = tensor.shape.at(1);
  std::vector<int64_t> ids;
  for (int64_t j = 0; j < width; ++j) {
    int64_t id = 0;
    if (tensor.dtype == "I64") {
      id = tensor.As<int64_t>()[static_cast<size_t>(i * width + j)];
    } else {
      id = tensor.As<int32_t>()[static_cast<size_t>(i * width + j)];
    }
    if (id >= 0) ids.push_back(id);
  }
  return ids;
}

class GoldenParityTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenParityTest, LogitsLayersAndChoicesAgree) {
  GoldenModel golden(GetParam());
  const int64_t vocab = golden.config().vocab_size;
  for (const std::string prompt : {"p1", "p7", "p40", "p120", "p300"}) {  // the two checkpoints have different long prompts
    if (!golden.Has(prompt + ".ids")) continue;
    SCOPED_TRACE(prompt);
    const std::vector<int32_t> ids = golden.At(prompt + ".ids").As<int32_t>();
    const std::vector<GoldenModel::Row> rows = golden.Run(ids);
    const std::vector<int32_t> positions = golden.At(prompt + ".logits_pos").As<int32_t>();
    const std::vector<float> logits = golden.At(prompt + ".logits").As<float>();
    Error2 error;
    for (size_t i = 0; i < positions.size(); ++i)
      for (int64_t j = 0; j < vocab; ++j)
        error.Add(rows[static_cast<size_t>(positions[i])].logits[static_cast<size_t>(j)],
                  logits[i * static_cast<size_t>(vocab) + static_cast<size_t>(j)]);
    EXPECT_LE(error.max, kLogitMax);
    EXPECT_LE(error.mean(), kLogitMean);
    std::printf("%s %s: logits max %.2e mean %.2e\n", GetParam(), prompt.c_str(), error.max, error.mean());

    for (int l = 0; l < golden.config().num_hidden_layers; ++l) {
      SCOPED_TRACE("layer " + std::to_string(l));
      const std::string layer = prompt + ".L" + std::to_string(l) + ".";
      const size_t layer_idx = static_cast<size_t>(l);
      if (golden.Has(layer + "streams")) {
        const Tensor& streams = golden.At(layer + "streams");
        const std::vector<float> values = streams.As<float>();
        const int64_t count = streams.shape[0], width = streams.shape[1] * streams.shape[2];
        // Long prompts keep the streams of the last positions only.
        const int64_t first = static_cast<int64_t>(ids.size()) == count ? 0 : -count;
        Error2 stream_error;
        for (int64_t i = 0; i < count; ++i) {
          const int64_t token = first == 0 ? i : positions[positions.size() - static_cast<size_t>(count - i)];
          for (int64_t j = 0; j < width; ++j)
            stream_error.Add(rows[static_cast<size_t>(token)].streams[layer_idx][static_cast<size_t>(j)],
                             values[static_cast<size_t>(i * width + j)]);
        }
        EXPECT_LE(stream_error.max, kLogitMax);
        EXPECT_LE(stream_error.mean(), kLogitMean);
      }
      for (size_t token = 0; token < ids.size(); ++token) {
        const GoldenModel::Row& row = rows[token];
        const auto expect_ids = [&](const char* what, const std::vector<int64_t>& ours) {
          if (!golden.Has(layer + what)) return;
          std::vector<int64_t> theirs = IdRow(golden.At(layer + what), static_cast<int64_t>(token));
          if (std::string(what) != "engram_rows") std::sort(theirs.begin(), theirs.end());
          ASSERT_EQ(ours, theirs) << what << " at position " << token;
        };
        expect_ids("router_ids", {row.experts[layer_idx].begin(), row.experts[layer_idx].end()});
        expect_ids("selected", row.selected[layer_idx]);
        expect_ids("candidates", row.candidates[layer_idx]);
        expect_ids("engram_rows", row.engram_rows[layer_idx]);
      }
    }
  }
}

TEST_P(GoldenParityTest, GreedyTokensAgree) {
  GoldenModel golden(GetParam());
  for (const std::string prompt : {"p1", "p7", "p40", "p120", "p300"}) {
    if (!golden.Has(prompt + ".ids")) continue;
    std::vector<int32_t> ids = golden.At(prompt + ".ids").As<int32_t>();
    const std::vector<int32_t> greedy = golden.At(prompt + ".greedy").As<int32_t>();
    const size_t num_prompt = ids.size();
    StepRunner& runner = golden.runner();
    size_t processed = 0;
    while (ids.size() < num_prompt + greedy.size()) {
      runner.step().Clear();
      const int32_t rows = static_cast<int32_t>(std::min<size_t>(ids.size() - processed, 64));
      runner.step().AddSegment(0, static_cast<int64_t>(processed), ids.data() + processed, rows, 1);
      runner.Replay();
      processed += static_cast<size_t>(rows);
      if (processed < ids.size()) continue;
      const View<const float> logits = runner.logits();
      ids.push_back(static_cast<int32_t>(std::max_element(logits.Row(0), logits.Row(0) + logits.cols) - logits.Row(0)));
    }
    EXPECT_EQ(std::vector<int32_t>(ids.begin() + static_cast<std::ptrdiff_t>(num_prompt), ids.end()), greedy)
        << GetParam() << " " << prompt;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenParityTest, ::testing::Values("v4_tiny", "v41_tiny"));

// The embedded model against golden/tiny.
class TinyModelTest : public ::testing::Test {
 protected:
  static std::unique_ptr<StepRunner> Open(const Model& model, Numerics numerics) {
    RunnerOptions options;
    options.numerics = numerics;
    options.num_workers = 2;
    options.max_seqs = 1;
    options.max_context = 2048;
    options.prefill_rows = 256;
    return std::make_unique<StepRunner>(model, options);
  }
  // valid.txt in chunks of 255 tokens with the begin token in front, tail dropped.
  static std::vector<std::vector<int32_t>> ValidationLists() {
    const std::vector<int32_t> ids =
        Tokenizer::Load(testing::TinyDir()).Encode(ReadFile(testing::SourcePath("tests/golden/tiny/valid.txt"), 1 << 20));
    std::vector<std::vector<int32_t>> lists;
    for (size_t first = 0; first + 255 <= ids.size(); first += 255) {
      lists.push_back({0});
      lists.back().insert(lists.back().end(), ids.begin() + static_cast<std::ptrdiff_t>(first),
                          ids.begin() + static_cast<std::ptrdiff_t>(first) + 255);
    }
    return lists;
  }
};

// How far rounding may move the next-token distribution: KL is what it adds to the expected loss when fp32 is the truth, so it gets the
// same half percent of the loss that validation allows.
constexpr double kLoss = 3.5810;
constexpr double kDivergenceMax = 0.005 * kLoss;

// A choice must be the reference's where its margin exceeds this. fp32: the golden files' own 0.02. Otherwise logits carry noise of
// variance s^2 <= 2 * kDivergenceMax (KL of a softmax under small noise is half the noise's variance), a difference of two of them twice
// that, and four standard deviations are left.
double MarginBound(Numerics numerics) { return numerics == Numerics::kFp32 ? 0.02 : 4 * std::sqrt(2 * 2 * kDivergenceMax); }

TEST_F(TinyModelTest, GreedyChoicesEqualTheReferenceInEveryMode) {
  const std::unique_ptr<Model> model = testing::OpenModel(testing::TinyDir());
  const Json golden = ReadJsonFile(testing::SourcePath("tests/golden/tiny/golden.json"));
  for (const Numerics numerics : {Numerics::kFp32, Numerics::kBf16, Numerics::kReference}) {
    const std::unique_ptr<StepRunner> runner = Open(*model, numerics);
    int64_t compared = 0, near_ties = 0, near_ties_that_differ = 0;
    for (const Json& test_case : golden["cases"]) {
      SCOPED_TRACE(test_case["prompt"].get<std::string>());
      std::vector<int32_t> ids = test_case["input_ids"];
      const int64_t num_prompt = static_cast<int64_t>(ids.size());
      const std::vector<int32_t> expected = test_case["output_ids"];
      ids.insert(ids.end(), expected.begin(), expected.end());
      Evaluate(*runner, ids, {}, [&](int64_t first, View<const float> logits, const StepRecord*) {
        for (int64_t i = 0; i < logits.rows; ++i) {
          const int64_t step = first + i - num_prompt + 1;
          if (step < 0 || step >= static_cast<int64_t>(expected.size())) continue;
          const float* row = logits.Row(i);
          const int32_t best = static_cast<int32_t>(std::max_element(row, row + logits.cols) - row);
          const bool is_near_tie = test_case["margins"][static_cast<size_t>(step)].get<double>() <= MarginBound(numerics);
          near_ties += is_near_tie;
          near_ties_that_differ += is_near_tie && best != expected[static_cast<size_t>(step)];
          if (!is_near_tie) {
            EXPECT_EQ(best, expected[static_cast<size_t>(step)]) << "step " << step << ", numerics " << static_cast<int>(numerics);
            ++compared;
          }
          if (step != 0 || numerics != Numerics::kFp32) continue;
          for (const Json& top : test_case["top5"]) EXPECT_NEAR(row[top[0].get<size_t>()], top[1].get<double>(), 2e-2);
        }
      });
    }
    std::printf("numerics %d: %ld greedy choices equal, margin above %.2f; of %ld nearer ties %ld differ\n", static_cast<int>(numerics),
                static_cast<long>(compared), MarginBound(numerics), static_cast<long>(near_ties), static_cast<long>(near_ties_that_differ));
    EXPECT_GT(compared, 300);
  }
}

TEST_F(TinyModelTest, LongPromptEqualsTheReferenceInFp32) {
  const std::unique_ptr<Model> model = testing::OpenModel(testing::TinyDir());
  const std::unique_ptr<StepRunner> runner = Open(*model, Numerics::kFp32);
  const Json golden = ReadJsonFile(testing::SourcePath("tests/golden/tiny/golden.json"));
  const std::vector<int32_t> ids = golden["long"]["ids"];
  ASSERT_EQ(ids.size(), 1024u);
  size_t positions = 0;
  Evaluate(*runner, ids, {}, [&](int64_t first, View<const float> logits, const StepRecord*) {
    for (const auto& [position, top5] : golden["long"]["positions"].items()) {
      const int64_t row = std::stoll(position) - first;
      if (row < 0 || row >= logits.rows) continue;
      ++positions;
      for (const Json& top : top5)
        EXPECT_NEAR(logits.Row(row)[top[0].get<size_t>()], top[1].get<double>(), 2e-2) << "position " << position;
    }
  });
  EXPECT_EQ(positions, golden["long"]["positions"].size());
}

TEST_F(TinyModelTest, ValidationLossAndDivergenceOfEveryNumericsMode) {
  if (testing::kSanitized)
    GTEST_SKIP() << "4,845 tokens in three modes take minutes under a sanitizer; the other tests here run the same code";
  const std::unique_ptr<Model> model = testing::OpenModel(testing::TinyDir());
  const std::vector<std::vector<int32_t>> lists = ValidationLists();
  ASSERT_EQ(lists.size(), 19u);  // 4,845 tokens
  // The loss and, per mode, the mean divergence of the next-token distribution from fp32's.
  std::vector<std::vector<float>> fp32(lists.size());
  for (const Numerics numerics : {Numerics::kFp32, Numerics::kBf16, Numerics::kReference}) {
    const std::unique_ptr<StepRunner> runner = Open(*model, numerics);
    double nats = 0, divergence = 0;
    int64_t num_tokens = 0, rows = 0;
    for (size_t list = 0; list < lists.size(); ++list) {
      Evaluate(*runner, lists[list], {}, [&](int64_t first, View<const float> logits, const StepRecord*) {
        for (int64_t i = 0; i < logits.rows; ++i) {
          const std::span<const float> row(logits.Row(i), static_cast<size_t>(logits.cols));
          const size_t next = static_cast<size_t>(first + i + 1);
          if (next < lists[list].size()) {
            nats -= LogProbability(row, lists[list][next]);
            ++num_tokens;
          }
          if (numerics == Numerics::kFp32) {
            fp32[list].insert(fp32[list].end(), row.begin(), row.end());
            continue;
          }
          const std::span<const float> exact(fp32[list].data() + static_cast<size_t>(first + i) * row.size(), row.size());
          const double log_z_exact = exact[0] - LogProbability(exact, 0), log_z = row[0] - LogProbability(row, 0);
          for (size_t j = 0; j < row.size(); ++j) {
            const double log_p = exact[j] - log_z_exact;
            divergence += std::exp(log_p) * (log_p - (row[j] - log_z));
          }
          ++rows;
        }
      });
    }
    const double loss = nats / static_cast<double>(num_tokens);
    const double kl = rows > 0 ? divergence / static_cast<double>(rows) : 0;
    std::printf("numerics %d: validation loss %.6f nats, mean divergence from fp32 %.2e\n", static_cast<int>(numerics), loss, kl);
    EXPECT_EQ(num_tokens, 4845);
    EXPECT_NEAR(loss, kLoss, numerics == Numerics::kFp32 ? 0.0005 : 0.005 * kLoss);
    EXPECT_LT(kl, kDivergenceMax);
  }
}

}  // namespace
}  // namespace tessera
