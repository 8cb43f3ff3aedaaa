#include "kernels/compress.h"

#include "kernels/vec.h"

namespace tessera::TSR_TIER {
namespace {

// The softmax of a channel is that channel's alone: one lane. Its maximum is found first, so that the slots are summed once, in order.
template <class LoadColumns>
inline Vec Pool(const LoadColumns& load, const float* const* u, const float* const* g, int64_t num_slots, int64_t col) {
  Vec max = load(g[0] + col);
  for (int64_t slot = 1; slot < num_slots; ++slot) max = Max(load(g[slot] + col), max);
  Vec sum = Zero(), weighted = Zero();
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    const Vec p = Exp(load(g[slot] + col) - max);
    sum = sum + p;
    weighted = MulAdd(p, load(u[slot] + col), weighted);
  }
  return weighted / sum;
}

template <class T>
void PoolAll(const float* const* u, const float* const* g, int64_t num_slots, int64_t cols, T* e) {
  int64_t col = 0;
  for (; col + kLanes <= cols; col += kLanes) Store(Pool([](const float* p) { return Load(p); }, u, g, num_slots, col), e + col);
  const int count = static_cast<int>(cols - col);
  if (count > 0) Store(Pool([count](const float* p) { return Load(p, count); }, u, g, num_slots, col), e + col, count);
}

}  // namespace

void PoolColumns(const float* const* u, const float* const* g, int64_t num_slots, int64_t cols, bf16* e) noexcept {
  PoolAll(u, g, num_slots, cols, e);
}
void PoolColumns(const float* const* u, const float* const* g, int64_t num_slots, int64_t cols, float* e) noexcept {
  PoolAll(u, g, num_slots, cols, e);
}

}  // namespace tessera::TSR_TIER
