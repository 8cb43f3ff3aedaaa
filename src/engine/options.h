// What an engine is opened with.
#pragma once

#include <cstdint>
#include <string>

#include "model/model.h"

namespace tessera {

struct EngineOptions {
  std::string model_dir;
  Numerics numerics = Numerics::kBf16;
  int threads = 0;            // workers; 0: one per usable physical core
  int32_t max_seqs = 8;       // sequences that run at once
  int64_t max_context = 0;    // tokens a sequence may have; 0: min(the model's, 32768)
  int32_t prefill_rows = 512; // rows of prompts a step takes
};

}  // namespace tessera
