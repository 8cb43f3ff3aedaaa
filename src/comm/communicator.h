// Collectives between ranks, as the forward pass and the library see them; a backend is one file that implements the private part.
// Ranks replay in lock-step, so a call never blocks for ever and never throws: it carries a tag that every rank must agree on and a time
// after which waiting ends, and it returns a status; last_error() then names both sides in one line. Sizes are bytes unless they are
// counts of floats, and sizes that do not fit together on this rank abort. All ranks call the same collectives in the same order.
// Buffers of one call do not overlap, except that a rank's own part may already lie in its place of a gathered result.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tessera {

// Which call this is; with the sizes, what peers compare before they touch data.
struct CollectiveTag {
  int64_t step = 0;     // Step::number in a replay, elsewhere any number the ranks share
  uint16_t region = 0;  // as in a plan's ops
  uint16_t op = 0;      // position inside the region
};
struct CollectiveCall {
  CollectiveTag tag;
  std::chrono::milliseconds timeout{30000};  // the clock is read only when a wait has become slow
};

enum class [[nodiscard]] CommStatus : uint8_t { kOk, kMismatch, kTimeout, kPeerLost };
enum class ReduceOp : uint8_t { kSum, kMax, kMin };

class Communicator {
 public:
  using Bytes = std::span<std::byte>;
  using ConstBytes = std::span<const std::byte>;
  using PartBytes = std::span<const int64_t>;  // [size()], bytes for or from each rank; parts lie packed in rank order

  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual const char* name() const = 0;
  virtual const std::string& last_error() const = 0;  // empty until a call has failed

  CommStatus Barrier(const CollectiveCall& call) noexcept { return DoBarrier(call); }
  // all = the `mine` of every rank in rank order; all.size() = size() * mine.size(), or with parts their sum, equal on every rank.
  CommStatus AllGather(const CollectiveCall& call, ConstBytes mine, Bytes all) noexcept;
  CommStatus AllGatherV(const CollectiveCall& call, ConstBytes mine, Bytes all, PartBytes parts) noexcept;
  // Part r of `send` becomes this rank's part of rank r's `receive`.
  CommStatus AllToAll(const CollectiveCall& call, ConstBytes send, Bytes receive) noexcept;
  CommStatus AllToAllV(const CollectiveCall& call, ConstBytes send, PartBytes send_parts, Bytes receive, PartBytes receive_parts) noexcept;
  // In place, fp32, ranks combined in ascending order: equal bits on every rank and run. ReduceScatter leaves this rank its `mine.size()`.
  CommStatus AllReduce(const CollectiveCall& call, std::span<float> values, ReduceOp op = ReduceOp::kSum) noexcept;
  CommStatus ReduceScatter(const CollectiveCall& call, std::span<const float> values, std::span<float> mine) noexcept;
  CommStatus Broadcast(const CollectiveCall& call, Bytes data, int root) noexcept;

  // The ranks that gave the same colour, ordered by (key, rank). Not for replays: throws Error where the others return a status.
  struct SplitOptions {
    int color = 0;
    int key = 0;
  };
  std::unique_ptr<Communicator> Split(const CollectiveCall& call, const SplitOptions& options) { return DoSplit(call, options); }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  // Arguments are checked. Empty parts mean equal ones.
  virtual CommStatus DoBarrier(const CollectiveCall& call) noexcept = 0;
  virtual CommStatus DoAllGather(const CollectiveCall& call, ConstBytes mine, Bytes all, PartBytes parts) noexcept = 0;
  virtual CommStatus DoAllToAll(const CollectiveCall& call, ConstBytes send, PartBytes send_parts, Bytes receive,
                                PartBytes receive_parts) noexcept = 0;
  virtual CommStatus DoAllReduce(const CollectiveCall& call, std::span<float> values, ReduceOp op) noexcept = 0;
  virtual CommStatus DoReduceScatter(const CollectiveCall& call, std::span<const float> values, std::span<float> mine) noexcept = 0;
  virtual CommStatus DoBroadcast(const CollectiveCall& call, Bytes data, int root) noexcept = 0;
  virtual std::unique_ptr<Communicator> DoSplit(const CollectiveCall& call, const SplitOptions& options) = 0;

  int rank_;
  int size_;
};

}  // namespace tessera
