#include "attention/indexer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/scratch.h"
#include "kernels/index_score.h"
#include "kernels/matmul.h"

namespace tessera {
namespace {

constexpr int64_t kStretchTarget = 512;  // 64 heads x 512 fp32 scores are 128 KiB: they stay in L2

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A worker's buffers for one item.
struct Buffers {
  explicit Buffers(const IndexerShape& shape, uint8_t* scratch) {
    ScratchCutter cut(scratch);
    const int64_t stretch = shape.stretch();
    packed_queries = cut.Take<uint8_t>(PackedBytes<bf16>(Format::kE2M1, shape.num_heads, shape.head_dim));
    score_scratch = cut.Take<uint8_t>(IndexScoreScratchBytes(shape.num_heads, stretch, shape.head_dim));
    scores = cut.Take<float>(stretch);
    key_codes = cut.Take<uint8_t>(stretch * shape.head_dim / 2);
    key_scales = cut.Take<uint8_t>(stretch * CeilDiv(shape.head_dim, 32));
    scored = cut.Take<ScoredIndex>(stretch);
    entries = cut.Take<ScoredIndex>(shape.topk + stretch);
    blocks = cut.Take<ScoredIndex>(shape.block_topk + stretch);
    used_bytes = cut.used_bytes();
  }
  uint8_t* packed_queries;
  uint8_t* score_scratch;
  float* scores;
  uint8_t* key_codes;
  uint8_t* key_scales;
  ScoredIndex* scored;
  ScoredIndex* entries;
  ScoredIndex* blocks;
  int64_t used_bytes;
};

// Scores of `count` keys at codes/scales into buffers.scores.
void ScoreKeys(const IndexerArguments& arguments, int64_t row, const uint8_t* codes, const uint8_t* scales, int64_t count,
               Buffers& buffers) noexcept {
  const IndexerShape& shape = arguments.shape;
  QuantView keys;
  keys.payload = codes;
  keys.scales = scales;
  keys.format = Format::kE2M1;
  keys.rows = count;
  keys.cols = shape.head_dim;
  keys.row_bytes = shape.head_dim / 2;
  keys.scale_stride = CeilDiv(shape.head_dim, 32);
  keys.block_rows = 1;
  keys.block_cols = 32;
  IndexScore({buffers.packed_queries, shape.num_heads, arguments.weights.Row(row), keys, shape.round_scores, buffers.scores,
              buffers.score_scratch});
}

// Keeps the best blocks of a stretch that starts at entry `first`: a block's score is its best entry's; the newest visible block is forced.
int64_t KeepBlocks(const IndexerShape& shape, int64_t first, int64_t count, int64_t num_visible, int64_t kept, Buffers& buffers) noexcept {
  const int64_t newest = (num_visible - 1) / shape.block_size;
  int64_t num_blocks = 0;
  for (int64_t begin = 0; begin < count; begin += shape.block_size, ++num_blocks) {
    const int64_t block = (first + begin) / shape.block_size;
    const int64_t end = std::min(begin + shape.block_size, count);
    const float best = *std::max_element(buffers.scores + begin, buffers.scores + end);
    buffers.scored[num_blocks] = {block == newest ? INFINITY : best, static_cast<int32_t>(block)};
  }
  return KeepTopK(buffers.blocks, kept, buffers.scored, num_blocks, shape.block_topk);
}

// All visible entries, stretch by stretch.
void ScoreAll(const IndexerArguments& arguments, int64_t row, int64_t list_idx, Range stretches, Buffers& buffers) noexcept {
  const IndexerShape& shape = arguments.shape;
  const Step& step = *arguments.step;
  const int64_t num_visible = (step.position[row] + 1) / shape.ratio;
  int64_t num_entries = 0, num_blocks = 0;
  for (int64_t stretch = stretches.begin; stretch < stretches.end; ++stretch) {
    const int64_t first = stretch * shape.stretch();
    const int64_t count = std::min(shape.stretch(), num_visible - first);
    ScoreKeys(arguments, row, arguments.key_codes.Row(step.slot[row], first), arguments.key_scales.Row(step.slot[row], first), count,
              buffers);
    if (shape.role == CandidateRole::kPublish) num_blocks = KeepBlocks(shape, first, count, num_visible, num_blocks, buffers);
    num_entries = KeepTopK(buffers.entries, num_entries, buffers.scores, count, static_cast<int32_t>(first), shape.topk);
  }
  std::copy_n(buffers.entries, num_entries, arguments.lists.entries + list_idx * shape.topk);
  arguments.lists.entry_counts[list_idx] = static_cast<int32_t>(num_entries);
  if (shape.role != CandidateRole::kPublish) return;
  std::copy_n(buffers.blocks, num_blocks, arguments.lists.blocks + list_idx * shape.block_topk);
  arguments.lists.block_counts[list_idx] = static_cast<int32_t>(num_blocks);
}

// Only the entries of the row's candidate blocks: their keys are gathered into stretches.
void ScoreCandidates(const IndexerArguments& arguments, int64_t row, int64_t list_idx, Range blocks, Buffers& buffers) noexcept {
  const IndexerShape& shape = arguments.shape;
  const Step& step = *arguments.step;
  const int64_t num_visible = (step.position[row] + 1) / shape.ratio;
  const int32_t* kept = arguments.candidates.blocks + row * shape.block_topk;
  const int64_t code_bytes = shape.head_dim / 2, scale_bytes = CeilDiv(shape.head_dim, 32);
  const int64_t blocks_at_once = shape.stretch() / shape.block_size;
  int64_t num_entries = 0;
  for (int64_t begin = blocks.begin; begin < blocks.end; begin += blocks_at_once) {
    const int64_t end = std::min(begin + blocks_at_once, blocks.end);
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = kept[i] * shape.block_size;
      const int64_t entries = std::min(shape.block_size, num_visible - first);
      std::memcpy(buffers.key_codes + count * code_bytes, arguments.key_codes.Row(step.slot[row], first),
                  static_cast<size_t>(entries * code_bytes));
      std::memcpy(buffers.key_scales + count * scale_bytes, arguments.key_scales.Row(step.slot[row], first),
                  static_cast<size_t>(entries * scale_bytes));
      for (int64_t entry = 0; entry < entries; ++entry) buffers.scored[count++].index = static_cast<int32_t>(first + entry);
    }
    ScoreKeys(arguments, row, buffers.key_codes, buffers.key_scales, count, buffers);
    for (int64_t i = 0; i < count; ++i) buffers.scored[i].score = buffers.scores[i];
    num_entries = KeepTopK(buffers.entries, num_entries, buffers.scored, count, shape.topk);
  }
  std::copy_n(buffers.entries, num_entries, arguments.lists.entries + list_idx * shape.topk);
  arguments.lists.entry_counts[list_idx] = static_cast<int32_t>(num_entries);
}

void Iota(int32_t* list, int64_t count) noexcept {
  for (int64_t i = 0; i < count; ++i) list[i] = static_cast<int32_t>(i);
}

}  // namespace

int64_t IndexerShape::stretch() const {
  const int64_t unit = 8 * block_size;
  return unit * std::max<int64_t>(1, kStretchTarget / unit);
}

bool IndexerShape::SelectsAll(int64_t num_visible) const {
  return num_visible <= topk && (role == CandidateRole::kNone || CeilDiv(num_visible, block_size) <= block_topk);
}

int64_t IndexerScratchBytes(const IndexerShape& shape) {
  const int64_t merge_bytes = 2 * std::max(shape.topk, shape.block_topk) * static_cast<int64_t>(sizeof(ScoredIndex));
  return std::max(Buffers(shape, nullptr).used_bytes, merge_bytes);
}

void ScoreEntries(const IndexerArguments& arguments, const WorkerContext& worker) noexcept {
  const IndexerShape& shape = arguments.shape;
  const Step& step = *arguments.step;
  const int64_t parts = PartsPerRow(arguments.rows.size(), worker.num_workers);
  const Range items = worker.PartOf(arguments.rows.size() * parts);
  Buffers buffers(shape, worker.scratch);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t row = arguments.rows[item / parts];
    const int part = static_cast<int>(item % parts);
    const int64_t num_visible = (step.position[row] + 1) / shape.ratio;
    if (shape.SelectsAll(num_visible)) continue;
    const View<const bf16> queries = MakeView(arguments.queries.Row(row), shape.num_heads, shape.head_dim);
    PackActivations<bf16>(queries, nullptr, shape.num_heads, Format::kE2M1, buffers.packed_queries);
    if (shape.role == CandidateRole::kRestrict)
      ScoreCandidates(arguments, row, item, PartOf(arguments.candidates.counts[row], part, static_cast<int>(parts)), buffers);
    else
      ScoreAll(arguments, row, item, PartOf(CeilDiv(num_visible, shape.stretch()), part, static_cast<int>(parts)), buffers);
  }
}

void MergeSelection(const IndexerArguments& arguments, const WorkerContext& worker) noexcept {
  const IndexerShape& shape = arguments.shape;
  const Step& step = *arguments.step;
  const PartialLists& lists = arguments.lists;
  const int64_t parts = PartsPerRow(arguments.rows.size(), worker.num_workers);
  const Range mine = worker.PartOf(arguments.rows.size());
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    const int64_t row = arguments.rows[i];
    int32_t* entries = arguments.selection.entries + row * arguments.selection.topk;
    int32_t* blocks = arguments.candidates.blocks + row * shape.block_topk;
    const int64_t num_visible = (step.position[row] + 1) / shape.ratio;
    const bool publishes = shape.role == CandidateRole::kPublish;
    if (shape.SelectsAll(num_visible)) {
      Iota(entries, num_visible);
      arguments.selection.counts[row] = static_cast<int32_t>(num_visible);
      if (!publishes) continue;
      Iota(blocks, CeilDiv(num_visible, shape.block_size));
      arguments.candidates.counts[row] = static_cast<int32_t>(CeilDiv(num_visible, shape.block_size));
      continue;
    }
    ScoredIndex* merged = reinterpret_cast<ScoredIndex*>(worker.scratch);
    int64_t count = 0;
    for (int64_t item = i * parts; item < (i + 1) * parts; ++item)
      count = KeepTopK(merged, count, lists.entries + item * shape.topk, lists.entry_counts[item], shape.topk);
    SortedIndices(merged, count, entries);
    arguments.selection.counts[row] = static_cast<int32_t>(count);
    if (!publishes) continue;
    count = 0;
    for (int64_t item = i * parts; item < (i + 1) * parts; ++item)
      count = KeepTopK(merged, count, lists.blocks + item * shape.block_topk, lists.block_counts[item], shape.block_topk);
    SortedIndices(merged, count, blocks);
    arguments.candidates.counts[row] = static_cast<int32_t>(count);
  }
}

}  // namespace tessera
