#include "model/linears.h"

#include <algorithm>

#include "core/check.h"
#include "core/dtype.h"
#include "core/scratch.h"
#include "kernels/matmul.h"
#include "model/op_costs.h"

namespace tessera {
namespace {

// A worker's stretch of one linear.
struct Piece {
  int32_t linear_idx = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// Rows are handed out in full register tiles where there are enough of them.
int64_t Grain(int64_t rows) { return rows <= 256 ? 4 : 16; }

// Activations are packed for at most this many rows at a time, so that the packed block of F32 weights (the hyper-connection mixes, whose
// rows hold all streams) stays in L2.
int64_t RowBlock(Format format) { return format == Format::kF32 ? 32 : 512; }

template <class T>
std::vector<std::vector<Piece>> Divide(const std::vector<Linear<T>>& linears, int num_workers) {
  int64_t total_bytes = 0;
  for (const Linear<T>& linear : linears) total_bytes += linear.w.rows * linear.w.row_bytes;
  std::vector<std::vector<Piece>> pieces(static_cast<size_t>(num_workers));
  int64_t bytes_before = 0;
  for (size_t i = 0; i < linears.size(); ++i) {
    const QuantView& w = linears[i].w;
    const int64_t grain = Grain(w.rows);
    int64_t row = 0;
    for (int worker = 0; worker < num_workers; ++worker) {
      // The worker's share ends at this many bytes of the whole; the last one takes what is left.
      const int64_t share_end = total_bytes * (worker + 1) / num_workers;
      int64_t end = (share_end - bytes_before) / w.row_bytes / grain * grain;
      end = worker == num_workers - 1 ? w.rows : std::clamp(end, row, w.rows);
      if (end > row) pieces[static_cast<size_t>(worker)].push_back({static_cast<int32_t>(i), row, end - row});
      row = std::max(row, end);
    }
    bytes_before += w.rows * w.row_bytes;
  }
  return pieces;
}

template <class T>
struct LinearsArguments {
  std::span<const Linear<T>> linears;
  std::span<const std::span<const Piece>> pieces;  // [num_workers]
  int64_t packed_bytes;

  void operator()(const WorkerContext& worker) const noexcept {
    ScratchCutter cut(worker.scratch);
    uint8_t* packed = cut.Take<uint8_t>(packed_bytes);
    uint8_t* matmul = worker.scratch + cut.used_bytes();
    const std::span<const Piece> mine = pieces[static_cast<size_t>(worker.worker_idx)];
    for (size_t i = 0; i < mine.size();) {
      // Pieces that share input and format form a run; the rows go through it block by block.
      const Linear<T>& first = linears[static_cast<size_t>(mine[i].linear_idx)];
      size_t end = i + 1;
      while (end < mine.size() && SamePacking(first, linears[static_cast<size_t>(mine[end].linear_idx)])) ++end;
      const int64_t row_block = RowBlock(first.w.format), rows = first.rows.size();
      for (int64_t begin = 0; begin < rows; begin += row_block) {
        const int64_t count = std::min(row_block, rows - begin);
        PackActivations<T>(Input(first, begin), first.rows.From(begin), count, first.w.format, packed);
        for (size_t j = i; j < end; ++j) Multiply(mine[j], begin, count, packed, matmul);
      }
      i = end;
    }
  }

  static bool SamePacking(const Linear<T>& a, const Linear<T>& b) noexcept {
    return a.x.data == b.x.data && a.x.cols == b.x.cols && a.w.format == b.w.format && a.rows.size() == b.rows.size();
  }

  // An identity list has no indices to start from: the view itself starts at the block.
  static View<const T> Input(const Linear<T>& linear, int64_t begin) noexcept {
    return linear.rows.rows == nullptr ? linear.x.Rows(begin, linear.x.rows - begin) : linear.x;
  }
  template <class U>
  static View<U> Output(const Linear<T>& linear, View<U> out, int64_t begin) noexcept {
    return linear.rows.rows == nullptr ? out.Rows(begin, out.rows - begin) : out;
  }

  void Multiply(const Piece& piece, int64_t begin, int64_t count, const uint8_t* packed, uint8_t* matmul) const noexcept {
    const Linear<T>& linear = linears[static_cast<size_t>(piece.linear_idx)];
    const QuantView w = linear.w.Rows(piece.first, piece.count);
    if (linear.out_float.data != nullptr)
      MatMulPacked<T, float>(packed, count, w, Output(linear, linear.out_float, begin).Columns(piece.first, piece.count), matmul,
                             linear.rows.From(begin));
    else
      MatMulPacked<T, T>(packed, count, w, Output(linear, linear.out, begin).Columns(piece.first, piece.count), matmul,
                         linear.rows.From(begin));
  }

  OpCost Cost() const noexcept {
    OpCost cost;
    for (const Linear<T>& linear : linears) cost += MatMulCost(linear.w, linear.rows.size());
    return cost;
  }
};

}  // namespace

template <class T>
void EmitLinears(PlanBuilder& builder, Region region, int32_t max_rows, const std::vector<Linear<T>>& linears) {
  int64_t packed_bytes = 0, matmul_bytes = 0;
  for (const Linear<T>& linear : linears) {
    CheckMatMulWeights(linear.w);
    TSR_CHECK(linear.x.cols == linear.w.cols, "input of {} columns for a weight of {}", linear.x.cols, linear.w.cols);
    const int64_t row_block = std::min<int64_t>(RowBlock(linear.w.format), max_rows);
    packed_bytes = std::max(packed_bytes, PackedBytes<T>(linear.w.format, row_block, linear.w.cols));
    matmul_bytes = std::max(matmul_bytes, MatMulScratchBytes(linear.w.cols));
  }
  std::vector<std::span<const Piece>> pieces;
  for (const std::vector<Piece>& mine : Divide(linears, builder.num_workers())) pieces.push_back(builder.Keep(mine));
  const LinearsArguments<T> arguments{builder.Keep(linears), builder.Keep(pieces), packed_bytes};
  builder.RequireScratch(static_cast<size_t>((packed_bytes + 63) / 64 * 64 + matmul_bytes));
  builder.Add(region, arguments);
}

template void EmitLinears<float>(PlanBuilder&, Region, int32_t, const std::vector<Linear<float>>&);
template void EmitLinears<bf16>(PlanBuilder&, Region, int32_t, const std::vector<Linear<bf16>>&);

}  // namespace tessera
