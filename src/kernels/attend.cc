#include "kernels/attend.h"

#include "core/check.h"
#include "kernels/tier.h"

namespace tessera {

TSR_DECLARE_TIERS(void AttendHeads(const AttendArguments<bf16>& arguments) noexcept;
                  void AttendHeads(const AttendArguments<float>& arguments) noexcept;)

template <class T>
void Attend(const AttendArguments<T>& arguments) noexcept {
  const auto& [q, kv, sink, scale, round_probabilities, out, scratch] = arguments;
  TSR_CHECK(kv.rows >= 1 && kv.cols >= 1 && q.cols == kv.cols && out.cols == kv.cols && out.rows == q.rows,
            "q [{}, {}], kv [{}, {}], out [{}, {}]", q.rows, q.cols, kv.rows, kv.cols, out.rows, out.cols);
  TSR_DISPATCH(AttendHeads(arguments));
}

template void Attend(const AttendArguments<bf16>&) noexcept;
template void Attend(const AttendArguments<float>&) noexcept;

}  // namespace tessera
