#include "comm/self.h"

#include <cstring>

namespace tessera {
namespace {

// A gathered part may already be in its place; an empty span may have no address.
void Copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

CommStatus SelfCommunicator::DoBarrier(const CollectiveCall&) noexcept { return CommStatus::kOk; }

CommStatus SelfCommunicator::DoAllGather(const CollectiveCall&, ConstBytes mine, Bytes all, PartBytes) noexcept {
  Copy(mine, all);
  return CommStatus::kOk;
}

CommStatus SelfCommunicator::DoAllToAll(const CollectiveCall&, ConstBytes send, PartBytes, Bytes receive, PartBytes) noexcept {
  Copy(send, receive);
  return CommStatus::kOk;
}

CommStatus SelfCommunicator::DoAllReduce(const CollectiveCall&, std::span<float>, ReduceOp) noexcept { return CommStatus::kOk; }

CommStatus SelfCommunicator::DoReduceScatter(const CollectiveCall&, std::span<const float> values, std::span<float> mine) noexcept {
  Copy(std::as_bytes(values), std::as_writable_bytes(mine));
  return CommStatus::kOk;
}

CommStatus SelfCommunicator::DoBroadcast(const CollectiveCall&, Bytes, int) noexcept { return CommStatus::kOk; }

std::unique_ptr<Communicator> SelfCommunicator::DoSplit(const CollectiveCall&, const SplitOptions&) {
  return std::make_unique<SelfCommunicator>();
}

}  // namespace tessera
