#include "kernels/index_score.h"

#include "kernels/index_score_body.h"
#include "kernels/matmul.h"
#include "kernels/tier.h"

namespace tessera {
namespace {

int64_t DotStride(int64_t num_entries) { return (num_entries + 15) / 16 * 16; }

}  // namespace

int64_t IndexScoreScratchBytes(int64_t num_heads, int64_t num_entries_max, int64_t index_head_dim) {
  return num_heads * DotStride(num_entries_max) * static_cast<int64_t>(sizeof(float)) + MatMulScratchBytes(index_head_dim);
}

void IndexScore(const IndexScoreArguments& arguments) noexcept {
  const int64_t num_entries = arguments.keys.rows;
  if (num_entries == 0) return;
  const View<float> dots = {static_cast<float*>(arguments.scratch), arguments.num_heads, num_entries, DotStride(num_entries)};
  MatMulPacked<bf16, float>(arguments.packed_queries, arguments.num_heads, arguments.keys, dots,
                            dots.data + arguments.num_heads * dots.stride);
  const HeadSumCall call = {dots, arguments.head_weights, arguments.round, arguments.scores};
  TSR_DISPATCH(SumHeads(call));
}

}  // namespace tessera
