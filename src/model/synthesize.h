// Writes a random checkpoint in the official layout: shards, index, config, tokenizer. What is written is planned first, from the table of
// tensors (model/weights.h), and can be shown without writing; the same plan and seed give the same bytes, whoever and however many
// write them. A checkpoint becomes visible as a whole: files have temporary names until all are on the disk, and config.json comes last.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "model/config.h"
#include "model/random_tensor.h"
#include "model/weights.h"

namespace tessera {

struct SynthFile {
  struct Tensor {
    std::string name;
    RandomTensors::Recipe recipe;
    int64_t begin = 0;  // bytes from the start of the file
  };
  std::string name;             // model-00001-of-00004.safetensors
  std::string header;           // length and JSON, everything before the data
  std::vector<Tensor> tensors;  // by offset
  int64_t bytes = 0;            // of the whole file
};

struct SynthPlan {
  std::vector<SynthFile> files;
  std::vector<std::pair<std::string, std::string>> texts;  // (name, content) of the small files, config.json last
  std::vector<GroupTotals> groups;
  int64_t num_tensors = 0;
  int64_t tensor_bytes = 0;
  int64_t num_parameters = 0;  // values of weights; scales and expert ids are none

  int64_t file_bytes() const;  // shards and small files
};

// As the released models are cut; a larger tensor is a file of its own.
constexpr int64_t kShardBytes = 5'000'000'000;

// `config` as from SynthConfigJson; `tokenizer` are the (name, content) of files that go with it.
SynthPlan PlanSynth(const Json& config, std::vector<std::pair<std::string, std::string>> tokenizer, int64_t shard_bytes = kShardBytes);

struct SynthWriting {
  uint64_t seed = 0;
  int num_workers = 1;
  std::function<void(int64_t bytes_done)> on_progress;  // called by the calling thread now and then; may be empty
  std::function<bool()> is_cancelled;                   // the same; may be empty
};

// Throws Error when `out_dir` is there and not an empty directory, or its file system lacks the room.
void CheckSynthTarget(const SynthPlan& plan, const std::string& out_dir);
// Checks the target and writes. False: cancelled. Then, and when it throws (which names the file), nothing that was written stays.
bool WriteSynth(const SynthPlan& plan, const std::string& out_dir, const SynthWriting& writing);

}  // namespace tessera
