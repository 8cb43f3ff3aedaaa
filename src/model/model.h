// A model ready to be built into plans: config, claimed weights, and the constants derived from them (rotary frequencies, n-gram hashes).
// Immutable once open; engines and plans point into it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engram/ngram.h"
#include "engram/store.h"
#include "model/config.h"
#include "model/safetensors.h"
#include "model/weights.h"

namespace tessera {

// How activations are kept and rounded (docs/numerics.md).
enum class Numerics : uint8_t {
  kBf16,       // bf16 at the reference's rounding points
  kReference,  // and Q8 on the inputs of quantised linears, rounded index scores and probabilities
  kFp32,       // fp32 activations, no rounding points
};
inline int64_t ActivationBytes(Numerics numerics) { return numerics == Numerics::kFp32 ? 4 : 2; }

struct EngramLayer {
  int layer_idx = 0;
  EngramLayerHash hash;
  std::vector<float> qk_weight;  // [hc_mult, hidden] fp32 products of q_weight and k_weight
};

class Model {
 public:
  // Opens and checks the checkpoint in `model_dir` and claims this rank's weights. `token_map` (token id -> compressed id) is needed when
  // the model has Engram layers; ids it does not cover count as padding. Throws Error naming what is wrong.
  Model(const std::string& model_dir, const std::vector<int32_t>& token_map, ClaimOptions claim);

  const ModelConfig& config() const { return config_; }
  const ModelWeights& weights() const { return weights_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  // Frequencies of a layer: plain for compress ratio 0, with compress_rope_theta and YaRN otherwise. [qk_rope_head_dim / 2]
  const std::vector<float>& rope_frequencies(bool compressed) const { return rope_frequencies_[compressed ? 1 : 0]; }
  const std::vector<EngramLayer>& engram_layers() const { return engram_layers_; }
  const std::vector<int32_t>& token_map() const { return token_map_; }  // [vocab_size], empty without Engram layers
  Store* engram_store() const { return engram_store_.get(); }

 private:
  ModelConfig config_;
  Checkpoint checkpoint_;
  ModelWeights weights_;
  std::vector<float> rope_frequencies_[2];
  std::vector<EngramLayer> engram_layers_;
  std::vector<int32_t> token_map_;
  std::unique_ptr<Store> engram_store_;
};

}  // namespace tessera
