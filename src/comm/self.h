// The communicator of a job of one rank: what goes in comes out, nothing waits and nothing can fail.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace tessera {

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator() : Communicator(0, 1) {}
  const char* name() const override { return "self"; }
  const std::string& last_error() const override { return last_error_; }

 private:
  CommStatus DoBarrier(const CollectiveCall& call) noexcept override;
  CommStatus DoAllGather(const CollectiveCall& call, ConstBytes mine, Bytes all, PartBytes parts) noexcept override;
  CommStatus DoAllToAll(const CollectiveCall& call, ConstBytes send, PartBytes send_parts, Bytes receive,
                        PartBytes receive_parts) noexcept override;
  CommStatus DoAllReduce(const CollectiveCall& call, std::span<float> values, ReduceOp op) noexcept override;
  CommStatus DoReduceScatter(const CollectiveCall& call, std::span<const float> values, std::span<float> mine) noexcept override;
  CommStatus DoBroadcast(const CollectiveCall& call, Bytes data, int root) noexcept override;
  std::unique_ptr<Communicator> DoSplit(const CollectiveCall& call, const SplitOptions& options) override;

  std::string last_error_;
};

}  // namespace tessera
