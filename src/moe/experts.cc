#include "moe/experts.h"

#include <algorithm>

#include "core/scratch.h"
#include "kernels/matmul.h"
#include "kernels/swiglu.h"

namespace tessera {
namespace {

constexpr int64_t kGrain = 16;        // output rows a slice is cut at: full register tiles
constexpr int64_t kUpBlockRows = 64;  // rows of w1 and w3 computed before their product is taken: gate and up stay in L1 at small M

// The worker's buffers of one product.
template <class T>
struct Buffers {
  Buffers(int64_t num_rows, int64_t cols, uint8_t* scratch) {
    ScratchCutter cut(scratch);
    // Expert weights are E2M1 in released checkpoints and E4M3 in base ones; the sizes differ only for F32 weights.
    packed = cut.Take<uint8_t>(PackedBytes<T>(Format::kE2M1, num_rows, cols));
    matmul = cut.Take<uint8_t>(MatMulScratchBytes(cols));
    gate = cut.Take<T>(num_rows * kUpBlockRows);
    up = cut.Take<T>(num_rows * kUpBlockRows);
    used_bytes = cut.used_bytes();
  }
  uint8_t* packed;
  uint8_t* matmul;
  T* gate;
  T* up;
  int64_t used_bytes;
};

// hidden.Row(i)[r] for the rows r of `slice`, from as many packed activations as `hidden` has rows.
template <class T>
void UpSlice(const ExpertWeights& expert, Range slice, float limit, const float* weights, View<T> hidden,
             const Buffers<T>& buffers) noexcept {
  const int64_t num_rows = hidden.rows;
  for (int64_t begin = slice.begin; begin < slice.end; begin += kUpBlockRows) {
    const int64_t count = std::min(kUpBlockRows, slice.end - begin);
    const View<T> gate = MakeView(buffers.gate, num_rows, count);
    const View<T> up = MakeView(buffers.up, num_rows, count);
    MatMulPacked<T, T>(buffers.packed, num_rows, expert.w1.Rows(begin, count), gate, buffers.matmul);
    MatMulPacked<T, T>(buffers.packed, num_rows, expert.w3.Rows(begin, count), up, buffers.matmul);
    for (int64_t i = 0; i < num_rows; ++i)
      SwiGlu(gate.Row(i), up.Row(i), count, limit, weights == nullptr ? 1.0f : weights[i], hidden.Row(i) + begin);
  }
}

}  // namespace

template <class T>
int64_t ExpertScratchBytes(int64_t max_rows, int64_t hidden_size, int64_t intermediate_size) {
  return std::max(Buffers<T>(max_rows, hidden_size, nullptr).used_bytes, Buffers<T>(max_rows, intermediate_size, nullptr).used_bytes);
}

template <class T>
void ExpertsUp(const ExpertArguments<T>& arguments, const WorkerContext& worker) noexcept {
  const Assignment& assignment = *arguments.assignment;
  const int64_t num_rows = arguments.rows.size();
  const Range slice = worker.PartOf(arguments.shared_expert->w1.rows, kGrain);
  const Buffers<T> shared(num_rows, arguments.x.cols, worker.scratch);
  PackActivations<T>(arguments.x, arguments.rows.From(0), num_rows, arguments.shared_expert->w1.format, shared.packed);
  UpSlice<T>(*arguments.shared_expert, slice, arguments.swiglu_limit, nullptr, arguments.shared_hidden.Rows(0, num_rows), shared);
  for (int32_t i = 0; i < *assignment.num_active; ++i) {
    const int32_t expert_idx = assignment.active_experts[i];
    const ExpertWeights& expert = arguments.experts[expert_idx];
    const int32_t first = assignment.first[expert_idx];
    const int64_t count = assignment.first[expert_idx + 1] - first;
    const Buffers<T> buffers(count, arguments.x.cols, worker.scratch);
    // With one row in the step every expert takes the same activations: they are packed for the first one.
    if (num_rows > 1 || i == 0) PackActivations<T>(arguments.x, assignment.row + first, count, expert.w1.format, buffers.packed);
    UpSlice<T>(expert, slice, arguments.swiglu_limit, assignment.weight + first, arguments.hidden.Rows(first, count), buffers);
  }
}

template <class T>
void ExpertsDown(const ExpertArguments<T>& arguments, const WorkerContext& worker) noexcept {
  const Assignment& assignment = *arguments.assignment;
  const int64_t num_rows = arguments.rows.size();
  const Range slice = worker.PartOf(arguments.shared_expert->w2.rows, kGrain);
  if (slice.begin == slice.end) return;
  const auto down = [&](const ExpertWeights& expert, View<const T> hidden, int64_t count, View<T> out,
                        const int32_t* out_rows) noexcept {
    const Buffers<T> buffers(count, hidden.cols, worker.scratch);
    PackActivations<T>(hidden, nullptr, count, expert.w2.format, buffers.packed);
    MatMulPacked<T, T>(buffers.packed, count, expert.w2.Rows(slice.begin, slice.end - slice.begin),
                       out.Columns(slice.begin, slice.end - slice.begin), buffers.matmul, out_rows);
  };
  down(*arguments.shared_expert, arguments.shared_hidden, num_rows, arguments.shared_out, arguments.rows.From(0));
  for (int32_t i = 0; i < *assignment.num_active; ++i) {
    const int32_t expert_idx = assignment.active_experts[i];
    const int32_t first = assignment.first[expert_idx];
    const int64_t count = assignment.first[expert_idx + 1] - first;
    down(arguments.experts[expert_idx], arguments.hidden.Rows(first, count), count, arguments.out.Rows(first, count), nullptr);
  }
}

template <class T>
void CombineExperts(const ExpertArguments<T>& arguments, int64_t row, Range columns, T* y) noexcept {
  const Assignment& assignment = *arguments.assignment;
  const T* shared = arguments.shared_out.Row(row);
  const int32_t* positions = assignment.position + row * assignment.experts_per_row;
  for (int64_t column = columns.begin; column < columns.end; ++column) {
    float sum = 0;
    for (int i = 0; i < assignment.experts_per_row; ++i)  // slots are in ascending expert id
      if (positions[i] >= 0) sum += ToFloat(arguments.out.Row(positions[i])[column]);
    y[column - columns.begin] = FromFloat<T>(sum + ToFloat(shared[column]));
  }
}

template int64_t ExpertScratchBytes<float>(int64_t, int64_t, int64_t);
template int64_t ExpertScratchBytes<bf16>(int64_t, int64_t, int64_t);
template void ExpertsUp<float>(const ExpertArguments<float>&, const WorkerContext&) noexcept;
template void ExpertsUp<bf16>(const ExpertArguments<bf16>&, const WorkerContext&) noexcept;
template void ExpertsDown<float>(const ExpertArguments<float>&, const WorkerContext&) noexcept;
template void ExpertsDown<bf16>(const ExpertArguments<bf16>&, const WorkerContext&) noexcept;
template void CombineExperts<float>(const ExpertArguments<float>&, int64_t, Range, float*) noexcept;
template void CombineExperts<bf16>(const ExpertArguments<bf16>&, int64_t, Range, bf16*) noexcept;

}  // namespace tessera
