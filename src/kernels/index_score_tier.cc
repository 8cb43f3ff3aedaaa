#include "kernels/index_score_body.h"
#include "kernels/vec.h"

namespace tessera::TSR_TIER {
namespace {

// Heads ascending for every entry, whatever the stretch: an entry's score does not depend on its neighbours.
template <bool kRound>
Vec ScoreLanes(const HeadSumCall& call, int64_t first, int count) {
  Vec sum = Zero();
  for (int64_t head_idx = 0; head_idx < call.dots.rows; ++head_idx) {
    Vec dot = Load(call.dots.Row(head_idx) + first, count);
    const Vec weight = Set1(call.head_weights[head_idx]);
    if constexpr (kRound) {
      dot = RoundToBf16(dot);
      sum = sum + RoundToBf16(weight * Max(dot, Zero()));
    } else {
      sum = MulAdd(weight, Max(dot, Zero()), sum);
    }
  }
  return kRound ? RoundToBf16(sum) : sum;
}

}  // namespace

void SumHeads(const HeadSumCall& call) noexcept {
  for (int64_t first = 0; first < call.dots.cols; first += kLanes) {
    const int64_t left = call.dots.cols - first;
    const int count = static_cast<int>(left < kLanes ? left : kLanes);
    Store(call.round ? ScoreLanes<true>(call, first, count) : ScoreLanes<false>(call, first, count), call.scores + first, count);
  }
}

}  // namespace tessera::TSR_TIER
