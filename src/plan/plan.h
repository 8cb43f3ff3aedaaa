// A plan is a list of ops {region, function, fixed arguments} over views into one arena, built once for a bucket of rows and replayed
// without allocation, locks or decisions. Building a plan is emitting the forward pass; whatever changes between steps is data the
// arguments point to.
#pragma once

#include <concepts>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/threads.h"

namespace tessera {

// What an op cannot do without: bytes that have to come from memory (weights, caches; no activations) and floating-point operations
// (2 per multiply-add). Follows from the data the op just worked on: asked for after
// the op and before the next one, which may reuse its buffers.
struct OpCost {
  int64_t bytes = 0;
  int64_t flops = 0;

  OpCost& operator+=(const OpCost& other) {
    bytes += other.bytes;
    flops += other.flops;
    return *this;
  }
};

class Timing;

struct Op {
  using Function = void (*)(const void* arguments, const WorkerContext& worker) noexcept;
  using Cost = OpCost (*)(const void* arguments) noexcept;
  uint16_t region = 0;  // model/regions.h
  Function function = nullptr;
  const void* arguments = nullptr;
  Cost cost = nullptr;  // null: activations only
};

class Plan {
 public:
  Plan(std::vector<Op> ops, int32_t bucket_rows, size_t scratch_bytes)
      : ops_(std::move(ops)), bucket_rows_(bucket_rows), scratch_bytes_(scratch_bytes) {}

  // Runs every op on every worker with a barrier between ops. `scratch`: one buffer a worker of at least scratch_bytes().
  void Replay(WorkerPool& pool, std::span<uint8_t* const> scratch) const noexcept;
  // The same; fills `timing`'s samples and records the step, of `num_rows` rows.
  void ReplayTimed(WorkerPool& pool, std::span<uint8_t* const> scratch, int32_t num_rows, Timing& timing) const noexcept;

  int32_t bucket_rows() const { return bucket_rows_; }
  size_t scratch_bytes() const { return scratch_bytes_; }
  size_t num_ops() const { return ops_.size(); }
  std::span<const Op> ops() const { return ops_; }

 private:
  std::vector<Op> ops_;
  int32_t bucket_rows_;
  size_t scratch_bytes_;
};

class PlanBuilder {
 public:
  // `activations` holds what ops compute (plans of smaller buckets alias its prefix), `arguments` what they were built with.
  PlanBuilder(Arena& activations, Arena& arguments, int32_t bucket_rows, int num_workers)
      : activations_(activations), arguments_(arguments), bucket_rows_(bucket_rows), num_workers_(num_workers) {}

  int32_t bucket_rows() const { return bucket_rows_; }
  int num_workers() const { return num_workers_; }
  Arena& activations() { return activations_; }
  Arena& arguments() { return arguments_; }

  void RequireScratch(size_t bytes) { scratch_bytes_ = bytes > scratch_bytes_ ? bytes : scratch_bytes_; }

  // Appends an op: `body(worker)` is called on every worker. The callable is copied into the arguments arena, so it may hold views,
  // pointers and numbers, and nothing that owns. A callable with a method `OpCost Cost() const noexcept` says what it costs.
  template <class F>
  void Add(uint16_t region, F body) {
    static_assert(std::is_trivially_destructible_v<F> && std::is_trivially_copyable_v<F>, "an op owns nothing");
    void* place = arguments_.AllocateBytes(sizeof(F));
    new (place) F(std::move(body));
    ops_.push_back(
        {region, [](const void* arguments, const WorkerContext& worker) noexcept { (*static_cast<const F*>(arguments))(worker); }, place});
    if constexpr (requires(const F& op) {
                    { op.Cost() } noexcept -> std::same_as<OpCost>;
                  })
      ops_.back().cost = [](const void* arguments) noexcept { return static_cast<const F*>(arguments)->Cost(); };
  }

  // The same for a body that does not say it itself: `cost()` returns what a replay of it cost.
  template <class F, class C>
  void Add(uint16_t region, F body, C cost) {
    struct Costed {
      F body;
      C cost;
      void operator()(const WorkerContext& worker) const noexcept { body(worker); }
      OpCost Cost() const noexcept { return cost(); }
    };
    Add(region, Costed{std::move(body), std::move(cost)});
  }

  // Copies a list of arguments to where an op may keep a span of it.
  template <class U>
  std::span<const U> Keep(const std::vector<U>& values) {
    static_assert(std::is_trivially_destructible_v<U>);
    U* copy = arguments_.Allocate<U>(static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) new (copy + i) U(values[i]);
    return {copy, values.size()};
  }

  Plan Finish() { return Plan(std::move(ops_), bucket_rows_, scratch_bytes_); }

 private:
  Arena& activations_;
  Arena& arguments_;
  int32_t bucket_rows_;
  int num_workers_;
  size_t scratch_bytes_ = 0;
  std::vector<Op> ops_;
};

}  // namespace tessera
