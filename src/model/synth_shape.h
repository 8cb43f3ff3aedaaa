// The shapes that random checkpoints are made in: those of the released models as constants, and small ones with every kind of layer, each
// with the sizes a user may change. The result is a config.json, from which everything else follows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace tessera {

// "v4-flash", "v4-pro", "v4.1-flash", "tiny-v4", "tiny-v4.1"
std::vector<std::string_view> SynthShapeNames();

// What is unset is as in the model named by `like`.
struct SynthShape {
  std::string like;
  // V4: the first layers of the model. V4.1: an even number from 8 up; windows alone in layers 0 and 1, ratio 2 up to half of the layers,
  // ratio 1 from there on, with few sources (KV: 2 and half; index: 2, half, last but one). Draft stages belong to the whole model and are
  // left out of any other number of layers.
  std::optional<int64_t> layers;
  std::optional<int64_t> experts;  // of each layer
  std::optional<int64_t> hidden;   // a multiple of 128
  std::optional<int64_t> vocab;
  // V4.1: rows of each Engram table, about: the tables get the first primes from a share per column on.
  std::optional<int64_t> engram_rows;
};

int64_t SynthVocabSize(const SynthShape& shape);
bool SynthHasEngram(const SynthShape& shape);

// The config.json of the shape; one of no changed size is that of the released model. `compressed_vocab_size` is the number of compressed
// ids of the tokenizer that goes with it (V4.1); 0: that of the released one. Throws Error with one line that names the option.
Json SynthConfigJson(const SynthShape& shape, int64_t compressed_vocab_size = 0);

}  // namespace tessera
