// The forward pass of a model as ops of a plan. deepseek_v4.cc and deepseek_v41.cc emit it, top to bottom like the paper.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/kv_cache.h"
#include "comm/communicator.h"
#include "core/step.h"
#include "core/view.h"
#include "model/model.h"
#include "plan/plan.h"

namespace tessera {

// Copies of what one layer computed, for dumps; rows of the last replayed step. Null views where a layer has no such thing.
struct LayerRecord {
  View<float> streams;       // [max_rows, hc_mult * hidden]
  View<int32_t> expert_ids;  // [max_rows, num_experts_per_tok]
  View<float> expert_weights;
  View<int32_t> selected;  // [max_rows, index_topk], first `selected_counts` valid; layers with an indexer or a reused selection
  int32_t* selected_counts = nullptr;
  View<int32_t> candidates;  // [max_rows, candidate_topk_blocks] blocks; the candidate source only
  int32_t* candidate_counts = nullptr;
  View<int64_t> engram_rows;  // [max_rows, columns]
};
struct StepRecord {
  std::vector<LayerRecord> layers;
  // Allocated in an arena of its own: records outlive the aliasing of activations between buckets.
  static StepRecord Allocate(Arena& arena, const ModelConfig& config, int32_t max_rows);
};

struct ForwardContext {
  const Model* model = nullptr;
  Numerics numerics = Numerics::kBf16;
  const Step* step = nullptr;  // read at every replay
  KvCache* cache = nullptr;
  const Communicator* comm = nullptr;
  const StepRecord* record = nullptr;  // set: ops that fill it are emitted after every layer
  int64_t max_context = 0;             // tokens a sequence may have
  int32_t max_rows = 0;                // rows of the largest bucket
};

struct ForwardOutputs {
  View<float> logits;  // [bucket rows, vocab_size]; row i belongs to step row logit_row[i]
};

// Emits the whole pass for the builder's bucket.
ForwardOutputs BuildForward(PlanBuilder& builder, const ForwardContext& context);

// What caches must hold.
struct CacheExtent {
  int64_t max_context = 0;     // tokens of a sequence
  int32_t max_rows = 0;        // rows of the largest bucket: a chunk writes its window rows first
  int32_t snapshot_reach = 0;  // the state at a whole number of entries can still be snapshotted this many tokens later
};
std::vector<CacheLayout> CacheLayouts(const ModelConfig& config, Numerics numerics, const CacheExtent& extent);
// Bytes of the activations of a bucket.
size_t ActivationBytesMax(const ModelConfig& config, Numerics numerics, int32_t max_rows, int num_workers);

}  // namespace tessera
