#include "kernels/topk.h"

#include <algorithm>
#include <cfloat>

#include "core/check.h"
#include "kernels/tier.h"

namespace tessera {

// Appends (scores[i], first_index + i) where scores[i] >= threshold to out, until `room` (at least 64, or num_scores) is nearly used or the
// scores end. Returns how many scores were read, at least one; *num_added says how many entries were written.
TSR_DECLARE_TIERS(int64_t AppendFrom(const float* scores, int64_t num_scores, float threshold, int32_t first_index, ScoredIndex* out,
                                     int64_t room, int64_t* num_added) noexcept;)

namespace {

// -inf and NaN never pass a comparison with the lowest finite score.
constexpr float kLowestScore = -FLT_MAX;
// Entries collected beyond k before the list is cut back: enough that a cut costs little per entry, few enough to stay in the L1 cache.
constexpr int64_t kSlackMin = 1024;

// The total order: float comparison takes -0 for +0.
bool Better(const ScoredIndex& a, const ScoredIndex& b) { return a.score > b.score || (a.score == b.score && a.index < b.index); }

// Cuts list[0, count) back to the k best and returns the new count.
int64_t Cut(ScoredIndex* list, int64_t count, int64_t k) {
  if (count <= k) return count;
  std::nth_element(list, list + (k - 1), list + count, Better);
  return k;
}

// What a further entry must reach to matter: the worst score of a full list. Four chains, so that the loop is not one chain of minima.
float Threshold(const ScoredIndex* list, int64_t count, int64_t k) {
  if (count < k) return kLowestScore;
  float worst[4] = {list[0].score, list[0].score, list[0].score, list[0].score};
  for (int64_t i = 0; i < count; ++i) worst[i & 3] = std::min(worst[i & 3], list[i].score);
  return std::min(std::min(worst[0], worst[1]), std::min(worst[2], worst[3]));
}

}  // namespace

int64_t KeepTopK(ScoredIndex* list, int64_t count, const float* scores, int64_t num_scores, int32_t first_index, int64_t k) noexcept {
  TSR_CHECK(k >= 0 && count >= 0 && count <= k && num_scores >= 0, "k {}, count {}, num_scores {}", k, count, num_scores);
  if (k == 0) return 0;
  const int64_t capacity = std::min(k + num_scores, k + std::max(k, kSlackMin));
  int64_t done = 0;
  while (done < num_scores) {
    const float threshold = Threshold(list, count, k);
    int64_t num_added = 0;
    done += TSR_DISPATCH(AppendFrom(scores + done, num_scores - done, threshold, first_index + static_cast<int32_t>(done), list + count,
                                    capacity - count, &num_added));
    count = Cut(list, count + num_added, k);
  }
  return count;
}

int64_t KeepTopK(ScoredIndex* list, int64_t count, const ScoredIndex* more, int64_t num_more, int64_t k) noexcept {
  TSR_CHECK(k >= 0 && count >= 0 && count <= k && num_more >= 0, "k {}, count {}, num_more {}", k, count, num_more);
  if (k == 0) return 0;
  const float threshold = Threshold(list, count, k);
  for (int64_t i = 0; i < num_more; ++i)
    if (more[i].score >= threshold) list[count++] = more[i];
  return Cut(list, count, k);
}

void SortedIndices(ScoredIndex* list, int64_t count, int32_t* indices) noexcept {
  for (int64_t i = 0; i < count; ++i) indices[i] = list[i].index;
  std::sort(indices, indices + count);
}

}  // namespace tessera
