// The dump of `eval`: for list i logits.i F32 [tokens, vocab]; with layers, for layer L, streams.i.L F32 [tokens, hc_mult, hidden],
// experts.i.L I64 and expert_weights.i.L F32 [tokens, top_k] (ascending id), selected.i.L I64 [tokens, n] (compressed entries attended,
// ascending, -1 padded), candidates.i.L I64 (visible entries in kept blocks, likewise) and engram_rows.i.L I64 [tokens, columns].
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/step_runner.h"

namespace tessera {

class EvalDump {
 public:
  explicit EvalDump(const ModelConfig& config) : config_(config) {}

  void BeginList(size_t list_idx, int64_t num_tokens, bool layers);
  // Rows [first, first + logits.rows) of the current list; `record` is null when layers are not dumped.
  void AddRows(int64_t first, View<const float> logits, const StepRecord* record);
  void Write(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    Dtype dtype;
    std::vector<int64_t> shape;
    std::vector<uint8_t> bytes;
  };
  // A row of ids of any length, padded with -1 to the width of the widest row when written.
  struct Ragged {
    std::string name;
    std::vector<std::vector<int64_t>> rows;
  };
  struct LayerTensors {
    Tensor* streams = nullptr;
    Tensor* experts = nullptr;
    Tensor* expert_weights = nullptr;
    Ragged* selected = nullptr;
    Ragged* candidates = nullptr;
    Tensor* engram_rows = nullptr;
  };
  Tensor* Add(const std::string& name, Dtype dtype, std::vector<int64_t> shape);
  void AddLayerRow(int layer_idx, int64_t token, int64_t row, const LayerRecord& record);

  const ModelConfig& config_;
  std::deque<Tensor> tensors_;
  std::deque<Ragged> ragged_;
  Tensor* logits_ = nullptr;
  std::vector<LayerTensors> layers_;
};

}  // namespace tessera
