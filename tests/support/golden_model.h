// Opens the models that the tests run: the two random golden checkpoints and the embedded one.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/step_runner.h"
#include "model/model.h"
#include "support/tensors.h"
#include "tokenizer/token_map.h"

namespace tessera::testing {

inline std::string GoldenDir(const std::string& name) { return SourcePath("tests/golden/" + name); }
inline std::string TinyDir() { return SourcePath("models/tiny"); }

inline std::unique_ptr<Model> OpenModel(const std::string& dir) {
  std::vector<int32_t> token_map;
  if (!ReadModelConfig(dir).engram_layer_ids.empty()) token_map = CompressedTokenMap(Tokenizer::Load(dir));
  return std::make_unique<Model>(dir, token_map, ClaimOptions{});
}

// Logits of every position of `ids` in one slot, cut into chunks that `chunk_rows(position)` names.
template <class F>
std::vector<float> LogitsInChunks(StepRunner& runner, int32_t slot, const std::vector<int32_t>& ids, F&& chunk_rows) {
  std::vector<float> all;
  for (int64_t first = 0; first < static_cast<int64_t>(ids.size());) {
    const int64_t left = static_cast<int64_t>(ids.size()) - first;
    const int32_t rows = static_cast<int32_t>(std::min<int64_t>(left, chunk_rows(first)));
    runner.step().Clear();
    runner.step().AddSegment(slot, first, ids.data() + first, rows, rows);
    runner.Replay();
    const View<const float> logits = runner.logits();
    for (int64_t row = 0; row < logits.rows; ++row) all.insert(all.end(), logits.Row(row), logits.Row(row) + logits.cols);
    first += rows;
  }
  return all;
}

// Where two runs first differ in a bit: -1 nowhere, otherwise the index of the float.
inline int64_t FirstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) return -1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return static_cast<int64_t>(i);
  return static_cast<int64_t>(std::min(a.size(), b.size()));
}

}  // namespace tessera::testing
