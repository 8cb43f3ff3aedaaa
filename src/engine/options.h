// What an engine is opened with. The table is the one list of these options: command line, JSON and Python walk it.
#pragma once

#include <cstdint>
#include <string>

#include "core/options.h"
#include "model/model.h"

namespace tessera {

enum class LoadMode : uint8_t { kMmap, kCopy };
enum class EngramPlacement : uint8_t { kAuto, kPrivate, kShared, kSharded, kFile };
enum class CommBackend : uint8_t { kAuto, kShm, kMpi };

struct EngineOptions {
  std::string model_dir;
  Numerics numerics = Numerics::kBf16;
  int threads = 0;  // workers; 0: one per usable physical core
  int ranks = 1;
  CommBackend comm = CommBackend::kAuto;
  EngramPlacement engram = EngramPlacement::kAuto;
  LoadMode load = LoadMode::kMmap;
  int max_seqs = 8;         // sequences that run at once
  int64_t max_context = 0;  // tokens a sequence may have; 0: min(the model's, 32768)
  int prefill_rows = 512;   // rows of prompts a step takes
  int64_t kv_cache_mib = 0;  // caches of all running sequences together; 0: what the host has left when the engine opens
  int64_t prefix_cache_mib = 512;  // snapshots of texts that later prompts may begin with; 0: none
  int queue_limit = 1024;    // requests that wait for a slot; one more is refused
};

// Every option but the model's directory.
OptionTable EngineOptionTable(EngineOptions& options);

}  // namespace tessera
