#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace tessera {
namespace {

// A backend of three ranks seen from rank 1, which counts the calls that pass the checks.
class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator() : Communicator(1, 3) {}
  const char* name() const override { return "counting"; }
  const std::string& last_error() const override { return last_error_; }
  int num_calls = 0;

 private:
  CommStatus Count() { return ++num_calls, CommStatus::kOk; }
  CommStatus DoBarrier(const CollectiveCall&) noexcept override { return Count(); }
  CommStatus DoAllGather(const CollectiveCall&, ConstBytes, Bytes, PartBytes) noexcept override { return Count(); }
  CommStatus DoAllToAll(const CollectiveCall&, ConstBytes, PartBytes, Bytes, PartBytes) noexcept override { return Count(); }
  CommStatus DoAllReduce(const CollectiveCall&, std::span<float>, ReduceOp) noexcept override { return Count(); }
  CommStatus DoReduceScatter(const CollectiveCall&, std::span<const float>, std::span<float>) noexcept override { return Count(); }
  CommStatus DoBroadcast(const CollectiveCall&, Bytes, int) noexcept override { return Count(); }
  std::unique_ptr<Communicator> DoSplit(const CollectiveCall&, const SplitOptions&) override { return nullptr; }

  std::string last_error_;
};

using Parts = std::array<int64_t, 3>;
const CollectiveCall kCall;

TEST(CommunicatorTest, SizesThatFitReachTheBackend) {
  CountingCommunicator comm;
  std::vector<std::byte> ten(10), thirty(30);
  std::vector<float> floats(30), third(10);
  EXPECT_EQ(comm.AllGather(kCall, ten, thirty), CommStatus::kOk);
  EXPECT_EQ(comm.AllGatherV(kCall, ten, thirty, Parts{0, 10, 20}), CommStatus::kOk);
  EXPECT_EQ(comm.AllToAll(kCall, thirty, thirty), CommStatus::kOk);
  EXPECT_EQ(comm.AllToAllV(kCall, ten, Parts{1, 2, 7}, thirty, Parts{28, 2, 0}), CommStatus::kOk);
  EXPECT_EQ(comm.ReduceScatter(kCall, floats, third), CommStatus::kOk);
  EXPECT_EQ(comm.AllReduce(kCall, floats), CommStatus::kOk);
  EXPECT_EQ(comm.Broadcast(kCall, ten, 2), CommStatus::kOk);
  EXPECT_EQ(comm.Barrier(kCall), CommStatus::kOk);
  EXPECT_EQ(comm.num_calls, 8);
}

TEST(CommunicatorDeathTest, SizesThatDoNotFitAbortWithTheirValues) {
  CountingCommunicator comm;
  std::vector<std::byte> ten(10), thirty(30);
  std::vector<float> floats(30), third(9);
  EXPECT_DEATH((void)comm.AllGather(kCall, ten, ten), "10 bytes from each of 3 ranks into 10");
  EXPECT_DEATH((void)comm.AllGatherV(kCall, ten, thirty, Parts{10, 0, 20}), "10 bytes from rank 1, its part is 0");
  EXPECT_DEATH((void)comm.AllGatherV(kCall, ten, thirty, Parts{0, 10, 21}), "parts of 31 bytes in a buffer of 30");
  EXPECT_DEATH((void)comm.AllGatherV(kCall, ten, thirty, std::array<int64_t, 2>{10, 20}), "2 parts for 3 ranks");
  EXPECT_DEATH((void)comm.AllToAll(kCall, ten, ten), "10 bytes to 3 ranks");
  EXPECT_DEATH((void)comm.AllToAllV(kCall, ten, Parts{1, 2, 7}, thirty, Parts{27, 3, 0}), "sends itself 2 bytes and expects 3");
  EXPECT_DEATH((void)comm.AllToAllV(kCall, ten, Parts{-1, 4, 7}, thirty, Parts{26, 4, 0}), "a part of -1 bytes");
  EXPECT_DEATH((void)comm.ReduceScatter(kCall, floats, third), "30 values for 3 ranks of 9");
  EXPECT_DEATH((void)comm.Broadcast(kCall, ten, 3), "rank 3 of 3");
}

}  // namespace
}  // namespace tessera
