// The sparse-attention indexer: scores every visible compressed entry of a row and keeps the best (spec/model.md sections 5.5, 6.5, 6.6).
// Scores never form a matrix: a work item is (row, part) and walks fixed stretches of entries with a bounded list; lists of a row merge by
// (score descending, index ascending), so the selection does not depend on how rows were divided over workers.
#pragma once

#include <cstdint>

#include "attention/kv_cache.h"
#include "core/dtype.h"
#include "core/step.h"
#include "core/threads.h"
#include "core/view.h"
#include "kernels/topk.h"

namespace tessera {

// V4.1: the candidate source publishes, per row, the blocks of entries that later index layers may choose from.
enum class CandidateRole : uint8_t { kNone, kPublish, kRestrict };

struct IndexerShape {
  int num_heads = 0;     // index_n_heads
  int64_t head_dim = 0;  // index_head_dim
  int ratio = 1;         // tokens per entry
  int64_t topk = 0;      // index_topk
  CandidateRole role = CandidateRole::kNone;
  int64_t block_size = 8;     // candidate_block_size
  int64_t block_topk = 0;     // candidate_topk_blocks
  bool round_scores = false;  // --numerics reference

  // Entries scored at once: about 512, and a multiple of 8 blocks so that no block is cut.
  int64_t stretch() const;
  bool SelectsAll(int64_t num_visible) const;  // every visible entry is kept: nothing to score
};

// What rows chose, shared by the layers that reuse it. Lists are ascending.
struct Selection {
  int32_t* entries = nullptr;  // [max_rows, topk]
  int32_t* counts = nullptr;   // [max_rows]
  int64_t topk = 0;
};
struct Candidates {
  int32_t* blocks = nullptr;  // [max_rows, block_topk]
  int32_t* counts = nullptr;  // [max_rows]
  int64_t block_topk = 0;
};
// Partial lists of the work items, [num_lists, topk] and [num_lists, block_topk].
struct PartialLists {
  ScoredIndex* entries = nullptr;
  int32_t* entry_counts = nullptr;
  ScoredIndex* blocks = nullptr;
  int32_t* block_counts = nullptr;
};

// Work items a row is divided into when `num_rows` rows run on `num_workers` workers.
constexpr int64_t PartsPerRow(int64_t num_rows, int num_workers) {
  return num_rows >= num_workers || num_rows == 0 ? 1 : (num_workers + num_rows - 1) / num_rows;
}
constexpr int64_t PartialListsMax(int64_t max_rows, int num_workers) { return max_rows + 2 * int64_t{num_workers}; }

struct IndexerArguments {
  IndexerShape shape;
  const Step* step = nullptr;
  RowList rows;
  View<const bf16> queries;   // [max_rows, num_heads * head_dim], values on the Q4 grid
  View<const float> weights;  // [max_rows, num_heads]
  RowStore key_codes, key_scales;
  Selection selection;
  Candidates candidates;
  PartialLists lists;
};
int64_t IndexerScratchBytes(const IndexerShape& shape);

// First op: every (row, part) scores its stretches into its partial list.
void ScoreEntries(const IndexerArguments& arguments, const WorkerContext& worker) noexcept;
// Second op: merges the lists of each row into selection (and candidates).
void MergeSelection(const IndexerArguments& arguments, const WorkerContext& worker) noexcept;

}  // namespace tessera
