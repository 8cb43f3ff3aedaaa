// Two small matrix products with a softmax between them, for a block of heads at a time, so that every kv value that is loaded serves all
// of them. Scores: a lane is a head, the columns of q are laid out across lanes once per block, kv values are broadcast. Weighted sum: a
// lane is a column. Either way a (head, entry) or (head, column) pair has its own lane and its own fixed order of operations, so neither
// the number of heads nor the sizes of the tiles below can change a result.
#include <algorithm>
#include <array>
#include <utility>

#include "kernels/attend.h"
#include "kernels/vec.h"

namespace tessera::TSR_TIER {
namespace {

// The products of this many columns are chained from zero before they are added to the score.
constexpr int64_t kGroupCols = 128;
// The exponentials of this many entries are chained from zero before they are added to the denominator.
constexpr int64_t kGroupEntries = 64;
// Entries that are read for all columns before the next ones: 768 rows of 512 bf16 fit the L2 cache.
constexpr int64_t kBlockEntries = 768;
// A column of rows defeats the hardware's prefetcher: rows this far ahead are asked for (up to a fifth faster).
// Widening the column into a buffer once for all tiles of heads was tried and is not faster.
constexpr int64_t kPrefetchEntries = 12;

// Tiles by register count: sums, the operands of one step, and one broadcast.
#if defined(TSR_TIER_AVX512)
constexpr int kBlockVecs = 2;    // heads of a block, in registers
constexpr int kTileEntries = 12; // 12 x 2 sums + 2 of q + 1
constexpr int kTileHeads = 12;   // 12 x 2 sums + 2 of kv + 1
#elif defined(TSR_TIER_AVX2)
constexpr int kBlockVecs = 2;
constexpr int kTileEntries = 6;  // 6 x 2 sums + 2 + 1
constexpr int kTileHeads = 6;
#else
constexpr int kBlockVecs = 4;
constexpr int kTileEntries = 2;
constexpr int kTileHeads = 4;
#endif
static_assert(kBlockVecs * kLanes <= kAttendBlockHeads);

struct Block {
  int64_t first_head;
  int num_heads;      // <= num_vecs * kLanes; the lanes above hold zeros and are not stored
};

// q of the block's heads for columns [col, col + cols), one row of V registers per column.
template <int V, class T>
void TransposeQueries(const View<const T>& q, const Block& block, int64_t col, int64_t cols, float* transposed) {
  constexpr int kHeads = V * kLanes;
  for (int h = 0; h < block.num_heads; ++h) {
    const T* row = q.Row(block.first_head + h) + col;
    for (int64_t c = 0; c < cols; ++c) transposed[c * kHeads + h] = ToFloat(row[c]);
  }
  for (int h = block.num_heads; h < kHeads; ++h)
    for (int64_t c = 0; c < cols; ++c) transposed[c * kHeads + h] = 0;
}

// kv values as fp32: rows of T = float are used where they are, rows of bf16 are widened once for all heads of the block.
struct WideRows {
  const float* data;
  int64_t stride;
};
template <int E>
WideRows Widen(const float* rows, int64_t stride, int64_t, float*) { return {rows, stride}; }
template <int E>
WideRows Widen(const bf16* rows, int64_t stride, int64_t cols, float* buffer) {
  for (int e = 0; e < E; ++e) {
    const bf16* row = rows + e * stride;
    float* wide = buffer + e * kGroupCols;
    int64_t c = 0;
    for (; c + kLanes <= cols; c += kLanes) Store(Load(row + c), wide + c);
    if (c < cols) Store(Load(row + c, static_cast<int>(cols - c)), wide + c, static_cast<int>(cols - c));
  }
  return {buffer, kGroupCols};
}

// scores[e] (V registers each) gets the products of `cols` columns of E entries, added unless this is the first group.
template <int V, int E>
void ScoreTile(const float* queries, WideRows rows, int64_t cols, bool first, float* scores) {
  constexpr int kHeads = V * kLanes;
  Vec sum[E][V];
  for (int e = 0; e < E; ++e)
    for (int v = 0; v < V; ++v) sum[e][v] = Zero();
  for (int64_t c = 0; c < cols; ++c) {
    Vec q[V];
    for (int v = 0; v < V; ++v) q[v] = Load(queries + c * kHeads + v * kLanes);
    for (int e = 0; e < E; ++e) {
      const Vec key = Set1(rows.data[e * rows.stride + c]);
      for (int v = 0; v < V; ++v) sum[e][v] = MulAdd(q[v], key, sum[e][v]);
    }
  }
  for (int e = 0; e < E; ++e) {
    for (int v = 0; v < V; ++v) {
      float* score = scores + e * kHeads + v * kLanes;
      Store(first ? sum[e][v] : Load(score) + sum[e][v], score);
    }
  }
}

template <int V, class T>
void Scores(const AttendArguments<T>& arguments, const Block& block, float* scores) {
  constexpr int kHeads = V * kLanes;
  alignas(64) float queries[kGroupCols * kHeads];
  alignas(64) float buffer[kTileEntries * kGroupCols];
  const View<const T>& kv = arguments.kv;
  for (int64_t begin = 0; begin < kv.rows; begin += kBlockEntries) {
    const int64_t end = std::min(begin + kBlockEntries, kv.rows);
    for (int64_t col = 0; col < kv.cols; col += kGroupCols) {
      const int64_t cols = std::min(kGroupCols, kv.cols - col);
      TransposeQueries<V>(arguments.q, block, col, cols, queries);
      const auto tiles = [&]<int E>(int64_t entry) {
        for (; entry + E <= end; entry += E)
          ScoreTile<V, E>(queries, Widen<E>(kv.Row(entry) + col, kv.stride, cols, buffer), cols, col == 0, scores + entry * kHeads);
        return entry;
      };
      tiles.template operator()<1>(tiles.template operator()<2>(tiles.template operator()<kTileEntries>(begin)));
    }
  }
}

// scores <- exp(scale * scores - max), in place; denominators [V registers] <- their sum and the sink's term.
template <int V, class T>
void Softmax(const AttendArguments<T>& arguments, const Block& block, float* scores, float* denominators) {
  constexpr int kHeads = V * kLanes;
  const int64_t num_entries = arguments.kv.rows;
  float sinks[kHeads] = {};
  std::copy_n(arguments.sink + block.first_head, block.num_heads, sinks);
  const Vec scale = Set1(arguments.scale);
  for (int v = 0; v < V; ++v) {
    float* column = scores + v * kLanes;
    Vec max = Load(column) * scale;
    for (int64_t e = 1; e < num_entries; ++e) max = Max(Load(column + e * kHeads) * scale, max);
    Vec total = Zero();
    for (int64_t begin = 0; begin < num_entries; begin += kGroupEntries) {
      Vec sum = Zero();
      for (int64_t e = begin; e < std::min(begin + kGroupEntries, num_entries); ++e) {
        const Vec p = Exp(Load(column + e * kHeads) * scale - max);
        sum = sum + p;
        Store(p, column + e * kHeads);
      }
      total = total + sum;
    }
    Store(total + Exp(Load(sinks + v * kLanes) - max), denominators + v * kLanes);
  }
  if (arguments.round_probabilities)
    for (int64_t i = 0; i < num_entries * kHeads; ++i) scores[i] = ToFloat(ToBf16(scores[i]));
}

// The two registers of columns that one step of a weighted sum covers, or one of which only `count` lanes are columns.
struct PairColumns {
  static constexpr int kVecs = 2;
  template <class T>
  void From(const T* p, Vec* x) const { LoadPair(p, &x[0], &x[1]); }
  template <class T>
  void To(const Vec* x, T* p) const { StorePair(x[0], x[1], p); }
};
struct PartialColumns {
  static constexpr int kVecs = 1;
  int count;
  template <class T>
  void From(const T* p, Vec* x) const { x[0] = Load(p, count); }
  template <class T>
  void To(const Vec* x, T* p) const { Store(x[0], p, count); }
};

struct WeightedTile {
  const float* probabilities;  // of the tile's first head and the first entry; entries are `heads` apart
  int64_t heads;
  float* sums;  // of the tile's first head and the strip's first lane; heads are kAttendChunkCols apart
};

// sums[h][columns] += sum_e p[e][h] * kv[e][columns] for H heads, e ascending.
template <int H, class Columns, class T>
void AddWeighted(const WeightedTile& tile, const Columns& columns, const View<const T>& kv) {
  constexpr int kVecs = Columns::kVecs;
  Vec sum[H][kVecs];
  for (int h = 0; h < H; ++h)
    for (int v = 0; v < kVecs; ++v) sum[h][v] = Load(tile.sums + h * kAttendChunkCols + v * kLanes);
  const T* row = kv.data;
  const float* p = tile.probabilities;
  for (int64_t e = 0; e < kv.rows; ++e, row += kv.stride, p += tile.heads) {
    Vec value[kVecs];
    __builtin_prefetch(row + kPrefetchEntries * kv.stride);
    columns.From(row, value);
    for (int h = 0; h < H; ++h) {
      const Vec weight = Set1(p[h]);
      for (int v = 0; v < kVecs; ++v) sum[h][v] = MulAdd(weight, value[v], sum[h][v]);
    }
  }
  for (int h = 0; h < H; ++h)
    for (int v = 0; v < kVecs; ++v) Store(sum[h][v], tile.sums + h * kAttendChunkCols + v * kLanes);
}

template <class Columns, class T, int... H>
void AddWeightedOf(int num_heads, const WeightedTile& tile, const Columns& columns, const View<const T>& kv,
                   std::integer_sequence<int, H...>) {
  using Function = void (*)(const WeightedTile&, const Columns&, const View<const T>&);
  static constexpr Function kByHeads[] = {&AddWeighted<H + 1, Columns, T>...};
  kByHeads[num_heads - 1](tile, columns, kv);
}

// Calls body(columns, col) for every strip of [0, cols).
template <class Body>
void ForEachStrip(int64_t cols, const Body& body) {
  int64_t col = 0;
  for (; col + 2 * kLanes <= cols; col += 2 * kLanes) body(PairColumns{}, col);
  for (; col < cols; col += kLanes) body(PartialColumns{static_cast<int>(std::min<int64_t>(kLanes, cols - col))}, col);
}

// out[h][first_col + i] = sum_e p[e][h] * kv[e][first_col + i] / denominator[h], e ascending from zero, for the i of one chunk of columns.
template <int V, class T>
void WeightedChunk(const AttendArguments<T>& arguments, const Block& block, int64_t first_col, const float* denominators) {
  constexpr int kHeads = V * kLanes;
  const View<const T> kv = arguments.kv.Columns(first_col, std::min(kAttendChunkCols, arguments.kv.cols - first_col));
  float* sums = arguments.scratch + kv.rows * kHeads;
  std::fill_n(sums, block.num_heads * kAttendChunkCols, 0.0f);
  for (int64_t begin = 0; begin < kv.rows; begin += kBlockEntries) {
    const View<const T> rows = kv.Rows(begin, std::min(kBlockEntries, kv.rows - begin));
    ForEachStrip(kv.cols, [&](const auto& columns, int64_t col) {
      // Tiles of equal height: 32 heads are 11 + 11 + 10, not 12 + 12 + 8.
      const int num_tiles = (block.num_heads + kTileHeads - 1) / kTileHeads;
      for (int tile = 0; tile < num_tiles; ++tile) {
        const int first = block.num_heads * tile / num_tiles, end = block.num_heads * (tile + 1) / num_tiles;
        AddWeightedOf(end - first, {arguments.scratch + begin * kHeads + first, kHeads, sums + first * kAttendChunkCols + col}, columns,
                      rows.Columns(col, rows.cols - col), std::make_integer_sequence<int, kTileHeads>{});
      }
    });
  }
  for (int h = 0; h < block.num_heads; ++h) {
    ForEachStrip(kv.cols, [&](const auto& columns, int64_t col) {
      Vec quotient[2];
      for (int v = 0; v < columns.kVecs; ++v)
        quotient[v] = Load(sums + h * kAttendChunkCols + col + v * kLanes) / Set1(denominators[h]);
      columns.To(quotient, arguments.out.Row(block.first_head + h) + first_col + col);
    });
  }
}

template <int V, class T>
void AttendBlock(const AttendArguments<T>& arguments, const Block& block) {
  float denominators[V * kLanes];
  Scores<V>(arguments, block, arguments.scratch);
  Softmax<V>(arguments, block, arguments.scratch, denominators);
  for (int64_t col = 0; col < arguments.kv.cols; col += kAttendChunkCols) WeightedChunk<V>(arguments, block, col, denominators);
}

template <class T>
void AttendAll(const AttendArguments<T>& arguments) {
  constexpr int kHeads = kBlockVecs * kLanes;
  for (int64_t head = 0; head < arguments.q.rows; head += kHeads) {
    const Block block = {head, static_cast<int>(std::min<int64_t>(kHeads, arguments.q.rows - head))};
    if (kBlockVecs > 1 && block.num_heads <= kHeads / 2) {
      AttendBlock<kBlockVecs / 2>(arguments, block);
    } else {
      AttendBlock<kBlockVecs>(arguments, block);
    }
  }
}

}  // namespace

void AttendHeads(const AttendArguments<bf16>& arguments) noexcept { AttendAll(arguments); }
void AttendHeads(const AttendArguments<float>& arguments) noexcept { AttendAll(arguments); }

}  // namespace tessera::TSR_TIER
