#include "cli/eval_dump.h"

#include <algorithm>
#include <cstring>

#include "model/safetensors.h"

namespace tessera {
namespace {

template <class U>
void PutRow(std::vector<uint8_t>& bytes, int64_t row, int64_t cols, const U* values) {
  std::memcpy(bytes.data() + static_cast<size_t>(row * cols) * sizeof(U), values, static_cast<size_t>(cols) * sizeof(U));
}

}  // namespace

EvalDump::Tensor* EvalDump::Add(const std::string& name, Dtype dtype, std::vector<int64_t> shape) {
  int64_t bytes = DtypeBytes(dtype);
  for (const int64_t size : shape) bytes *= size;
  tensors_.push_back({name, dtype, std::move(shape), std::vector<uint8_t>(static_cast<size_t>(bytes))});
  return &tensors_.back();
}

void EvalDump::BeginList(size_t list_idx, int64_t num_tokens, bool layers) {
  const std::string list = "." + std::to_string(list_idx);
  logits_ = Add("logits" + list, Dtype::kF32, {num_tokens, config_.vocab_size});
  layers_.clear();
  if (!layers) return;
  for (int layer_idx = 0; layer_idx < config_.num_hidden_layers; ++layer_idx) {
    const std::string suffix = list + "." + std::to_string(layer_idx);
    LayerTensors layer;
    layer.streams = Add("streams" + suffix, Dtype::kF32, {num_tokens, config_.hc_mult, config_.hidden_size});
    layer.experts = Add("experts" + suffix, Dtype::kI64, {num_tokens, config_.num_experts_per_tok});
    layer.expert_weights = Add("expert_weights" + suffix, Dtype::kF32, {num_tokens, config_.num_experts_per_tok});
    const auto add_ragged = [&](const std::string& name) {
      ragged_.push_back({name + suffix, std::vector<std::vector<int64_t>>(static_cast<size_t>(num_tokens))});
      return &ragged_.back();
    };
    if (config_.compress_ratios[static_cast<size_t>(layer_idx)] > 0) layer.selected = add_ragged("selected");
    if (layer_idx == config_.candidate_source_layer_id) layer.candidates = add_ragged("candidates");
    if (config_.IsEngramLayer(layer_idx))
      layer.engram_rows = Add("engram_rows" + suffix, Dtype::kI64, {num_tokens, config_.engram_columns()});
    layers_.push_back(layer);
  }
}

void EvalDump::AddRows(int64_t first, View<const float> logits, const StepRecord* record) {
  for (int64_t row = 0; row < logits.rows; ++row) {
    PutRow(logits_->bytes, first + row, logits.cols, logits.Row(row));
    if (record == nullptr) continue;
    for (int layer_idx = 0; layer_idx < config_.num_hidden_layers; ++layer_idx)
      AddLayerRow(layer_idx, first + row, row, record->layers[static_cast<size_t>(layer_idx)]);
  }
}

void EvalDump::AddLayerRow(int layer_idx, int64_t token, int64_t row, const LayerRecord& record) {
  const LayerTensors& layer = layers_[static_cast<size_t>(layer_idx)];
  const int64_t ratio = config_.compress_ratios[static_cast<size_t>(layer_idx)];
  PutRow(layer.streams->bytes, token, record.streams.cols, record.streams.Row(row));
  const std::vector<int64_t> ids(record.expert_ids.Row(row), record.expert_ids.Row(row) + record.expert_ids.cols);
  PutRow(layer.experts->bytes, token, record.expert_ids.cols, ids.data());
  PutRow(layer.expert_weights->bytes, token, record.expert_weights.cols, record.expert_weights.Row(row));
  if (layer.engram_rows != nullptr) PutRow(layer.engram_rows->bytes, token, record.engram_rows.cols, record.engram_rows.Row(row));
  if (layer.selected != nullptr) {
    std::vector<int64_t>& selected = layer.selected->rows[static_cast<size_t>(token)];
    if (record.selected_counts != nullptr)
      selected.assign(record.selected.Row(row), record.selected.Row(row) + record.selected_counts[row]);
    else  // every visible entry is attended
      for (int64_t entry = 0; entry < (token + 1) / ratio; ++entry) selected.push_back(entry);
  }
  if (layer.candidates != nullptr)
    for (int32_t i = 0; i < record.candidate_counts[row]; ++i) {
      const int64_t begin = record.candidates.Row(row)[i] * config_.candidate_block_size;
      const int64_t end = std::min(begin + config_.candidate_block_size, (token + 1) / ratio);
      for (int64_t entry = begin; entry < end; ++entry) layer.candidates->rows[static_cast<size_t>(token)].push_back(entry);
    }
}

void EvalDump::Write(const std::string& path) const {
  std::vector<TensorToWrite> tensors;
  for (const Tensor& tensor : tensors_) tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  std::deque<std::vector<int64_t>> padded;
  for (const Ragged& ragged : ragged_) {
    size_t width = 0;
    for (const std::vector<int64_t>& row : ragged.rows) width = std::max(width, row.size());
    std::vector<int64_t>& values = padded.emplace_back(ragged.rows.size() * width, -1);
    for (size_t i = 0; i < ragged.rows.size(); ++i)
      std::copy(ragged.rows[i].begin(), ragged.rows[i].end(), values.begin() + static_cast<std::ptrdiff_t>(i * width));
    tensors.push_back({ragged.name,
                       Dtype::kI64,
                       {static_cast<int64_t>(ragged.rows.size()), static_cast<int64_t>(width)},
                       {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(int64_t)}});
  }
  WriteSafetensors(path, tensors);
}

}  // namespace tessera
