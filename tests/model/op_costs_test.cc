#include "model/op_costs.h"

#include <gtest/gtest.h>

#include "support/op_inputs.h"

namespace tessera {
namespace {

QuantView Matrix(Format format, int64_t rows, int64_t cols, int32_t block_rows, int32_t block_cols) {
  static const uint8_t bytes[1] = {};
  QuantView w;
  w.payload = bytes;
  w.format = format;
  w.rows = rows;
  w.cols = cols;
  w.row_bytes = FormatRowBytes(format, cols);
  if (format == Format::kE4M3 || format == Format::kE2M1) {
    w.scales = bytes;
    w.block_rows = block_rows;
    w.block_cols = block_cols;
    w.scale_stride = (cols + block_cols - 1) / block_cols;
  }
  return w;
}

TEST(OpCostsTest, AMatrixIsReadOnceWithItsScales) {
  const QuantView fp8 = Matrix(Format::kE4M3, 256, 512, 128, 128);
  EXPECT_EQ(MatMulCost(fp8, 1).bytes, 256 * 512 + 2 * 4);
  EXPECT_EQ(MatMulCost(fp8, 7).bytes, 256 * 512 + 2 * 4);
  EXPECT_EQ(MatMulCost(fp8, 7).flops, 2 * 7 * 256 * 512);
  EXPECT_EQ(MatMulCost(Matrix(Format::kE2M1, 3, 64, 1, 32), 2).bytes, 3 * 32 + 3 * 2);
  EXPECT_EQ(MatMulCost(Matrix(Format::kBF16, 3, 5, 1, 1), 2).bytes, 30);
  EXPECT_EQ(MatMulCost(fp8, 0).bytes, 0) << "no rows, nothing to read";
}

TEST(OpCostsTest, ExpertsWithoutRowsAreNotRead) {
  testing::StepRows rows(4);
  rows.Add(0, 0, 3);
  Arena arena("assignment", size_t{1} << 16);
  Assignment assignment = Assignment::Allocate(arena, 4, 5, 2);
  const int32_t ids[] = {1, 4, 1, 3, 1, 4};
  const float weights[6] = {};
  assignment.Sort(rows.step().AllRows(), ids, weights);
  const ExpertWeights expert = {Matrix(Format::kE2M1, 64, 128, 1, 32), Matrix(Format::kE2M1, 64, 128, 1, 32),
                                Matrix(Format::kE2M1, 128, 64, 1, 32)};
  const std::vector<ExpertWeights> experts(5, expert);
  ExpertArguments<bf16> arguments;
  arguments.rows = rows.step().AllRows();
  arguments.assignment = &assignment;
  arguments.experts = experts.data();
  arguments.shared_expert = &expert;
  const int64_t matrix = 64 * 64 + 64 * 4;  // codes, scales
  const OpCost up = ExpertsUpCost(arguments), down = ExpertsDownCost(arguments);
  EXPECT_EQ(up.bytes, (3 + 1) * 2 * matrix) << "experts 1, 3, 4 and the shared one";
  EXPECT_EQ(down.bytes, (3 + 1) * matrix);
  EXPECT_EQ(up.flops, 2 * (6 + 3) * 2 * 64 * 128) << "six routed places and three rows";
  EXPECT_EQ(down.flops, 2 * (6 + 3) * 64 * 128);
}

RowStore Store(int64_t row_bytes) {
  static uint8_t byte;
  return {&byte, 1000, row_bytes, 1000 * row_bytes};
}

TEST(OpCostsTest, RowsOfOneSequenceShareTheirWindowAndEntries) {
  testing::StepRows rows(16);
  rows.Add(0, 100, 4);  // a chunk: its windows overlap
  rows.Add(1, 10, 1);   // shorter than a window
  SparseAttentionArguments<bf16> arguments;
  arguments.step = &rows.step();
  arguments.rows = rows.step().AllRows();
  arguments.num_heads = 2;
  arguments.window_tokens = 32;
  arguments.window_layout = arguments.compressed_layout = KvRowLayout::Make(KvFormat::kV41Window, 64, 16, 2);
  const int64_t row_bytes = arguments.window_layout.row_bytes;
  EXPECT_EQ(AttendCost(arguments).bytes, (35 + 11) * row_bytes);
  EXPECT_EQ(AttendCost(arguments).flops, 4 * (4 * 32 + 11) * 2 * 64);
  arguments.compressed = Store(row_bytes);
  arguments.ratio = 4;
  EXPECT_EQ(AttendCost(arguments).bytes, (35 + 11 + 26 + 2) * row_bytes) << "all visible entries, those of the last row";
  const int32_t selected[5 * 8] = {}, counts[] = {3, 3, 4, 4, 1};
  arguments.selected = selected;
  arguments.selected_counts = counts;
  arguments.selected_stride = 8;
  EXPECT_EQ(AttendCost(arguments).bytes, (35 + 11 + 14 + 1) * row_bytes) << "at most what was selected";
  EXPECT_EQ(AttendCost(arguments).flops, 4 * (4 * 32 + 11 + 14 + 1) * 2 * 64);
}

TEST(OpCostsTest, OnlyRowsThatScoreReadKeys) {
  testing::StepRows rows(16);
  rows.Add(0, 100, 2);
  rows.Add(1, 10, 1);  // sees 5 entries and keeps them all
  IndexerArguments arguments;
  arguments.shape.num_heads = 3;
  arguments.shape.head_dim = 32;
  arguments.shape.ratio = 2;
  arguments.shape.topk = 8;
  arguments.step = &rows.step();
  arguments.rows = rows.step().AllRows();
  arguments.key_codes = Store(16);
  arguments.key_scales = Store(1);
  EXPECT_EQ(IndexCost(arguments).bytes, 51 * 17);
  EXPECT_EQ(IndexCost(arguments).flops, 2 * (50 + 51) * 3 * 32);
  arguments.shape.role = CandidateRole::kRestrict;
  arguments.shape.block_size = 8;
  arguments.shape.block_topk = 2;
  const int32_t counts[] = {2, 2, 1};
  arguments.candidates.counts = const_cast<int32_t*>(counts);
  EXPECT_EQ(IndexCost(arguments).bytes, 32 * 17) << "the blocks of both rows";
}

}  // namespace
}  // namespace tessera
