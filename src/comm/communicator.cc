#include "comm/communicator.h"

#include "core/check.h"

namespace tessera {
namespace {

void CheckParts(const char* what, Communicator::PartBytes parts, size_t total_bytes, int size) {
  TSR_CHECK(static_cast<int>(parts.size()) == size, "{}: {} parts for {} ranks", what, parts.size(), size);
  int64_t sum_bytes = 0;
  for (int64_t part_bytes : parts) {
    TSR_CHECK(part_bytes >= 0, "{}: a part of {} bytes", what, part_bytes);
    sum_bytes += part_bytes;
  }
  TSR_CHECK(static_cast<size_t>(sum_bytes) == total_bytes, "{}: parts of {} bytes in a buffer of {}", what, sum_bytes, total_bytes);
}

}  // namespace

CommStatus Communicator::AllGather(const CollectiveCall& call, ConstBytes mine, Bytes all) noexcept {
  TSR_CHECK(all.size() == mine.size() * static_cast<size_t>(size_), "all-gather: {} bytes from each of {} ranks into {}", mine.size(),
            size_, all.size());
  return DoAllGather(call, mine, all, {});
}

CommStatus Communicator::AllGatherV(const CollectiveCall& call, ConstBytes mine, Bytes all, PartBytes parts) noexcept {
  CheckParts("all-gather", parts, all.size(), size_);
  TSR_CHECK(static_cast<size_t>(parts[static_cast<size_t>(rank_)]) == mine.size(), "all-gather: {} bytes from rank {}, its part is {}",
            mine.size(), rank_, parts[static_cast<size_t>(rank_)]);
  return DoAllGather(call, mine, all, parts);
}

CommStatus Communicator::AllToAll(const CollectiveCall& call, ConstBytes send, Bytes receive) noexcept {
  TSR_CHECK(send.size() == receive.size() && send.size() % static_cast<size_t>(size_) == 0,
            "all-to-all: {} bytes to {} ranks, {} from them", send.size(), size_, receive.size());
  return DoAllToAll(call, send, {}, receive, {});
}

CommStatus Communicator::AllToAllV(const CollectiveCall& call, ConstBytes send, PartBytes send_parts, Bytes receive,
                                   PartBytes receive_parts) noexcept {
  CheckParts("all-to-all, sent", send_parts, send.size(), size_);
  CheckParts("all-to-all, received", receive_parts, receive.size(), size_);
  const auto self = static_cast<size_t>(rank_);
  TSR_CHECK(send_parts[self] == receive_parts[self], "all-to-all: rank {} sends itself {} bytes and expects {}", rank_, send_parts[self],
            receive_parts[self]);
  return DoAllToAll(call, send, send_parts, receive, receive_parts);
}

CommStatus Communicator::AllReduce(const CollectiveCall& call, std::span<float> values, ReduceOp op) noexcept {
  return DoAllReduce(call, values, op);
}

CommStatus Communicator::ReduceScatter(const CollectiveCall& call, std::span<const float> values, std::span<float> mine) noexcept {
  TSR_CHECK(values.size() == mine.size() * static_cast<size_t>(size_), "reduce-scatter: {} values for {} ranks of {}", values.size(), size_,
            mine.size());
  return DoReduceScatter(call, values, mine);
}

CommStatus Communicator::Broadcast(const CollectiveCall& call, Bytes data, int root) noexcept {
  TSR_CHECK(root >= 0 && root < size_, "broadcast from rank {} of {}", root, size_);
  return DoBroadcast(call, data, root);
}

}  // namespace tessera
