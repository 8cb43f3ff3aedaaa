#include "comm/self.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

namespace tessera {
namespace {

const CollectiveCall kCall = {{7, 3, 1}};

std::vector<std::byte> Pattern(size_t num_bytes) {
  std::vector<std::byte> bytes(num_bytes);
  for (size_t i = 0; i < num_bytes; ++i) bytes[i] = static_cast<std::byte>(i * 37 + 5);
  return bytes;
}

TEST(SelfTest, IsRankZeroOfOne) {
  SelfCommunicator comm;
  EXPECT_EQ(comm.rank(), 0);
  EXPECT_EQ(comm.size(), 1);
  EXPECT_STREQ(comm.name(), "self");
  EXPECT_EQ(comm.Barrier(kCall), CommStatus::kOk);
  EXPECT_EQ(comm.last_error(), "");
}

TEST(SelfTest, CopiesWhatItIsGiven) {
  SelfCommunicator comm;
  for (size_t num_bytes : {0, 1, 3, 64, 1000}) {
    const std::vector<std::byte> sent = Pattern(num_bytes);
    const std::array<int64_t, 1> parts = {static_cast<int64_t>(num_bytes)};
    std::vector<std::byte> gathered(num_bytes), gathered_v(num_bytes), exchanged(num_bytes), exchanged_v(num_bytes);
    EXPECT_EQ(comm.AllGather(kCall, sent, gathered), CommStatus::kOk);
    EXPECT_EQ(comm.AllGatherV(kCall, sent, gathered_v, parts), CommStatus::kOk);
    EXPECT_EQ(comm.AllToAll(kCall, sent, exchanged), CommStatus::kOk);
    EXPECT_EQ(comm.AllToAllV(kCall, sent, parts, exchanged_v, parts), CommStatus::kOk);
    EXPECT_EQ(gathered, sent);
    EXPECT_EQ(gathered_v, sent);
    EXPECT_EQ(exchanged, sent);
    EXPECT_EQ(exchanged_v, sent);
  }
}

TEST(SelfTest, AGatheredPartMayBeInItsPlace) {
  SelfCommunicator comm;
  std::vector<std::byte> all = Pattern(100);
  const std::vector<std::byte> before = all;
  EXPECT_EQ(comm.AllGather(kCall, all, all), CommStatus::kOk);
  EXPECT_EQ(all, before);
}

TEST(SelfTest, ReductionsAndBroadcastKeepTheValues) {
  SelfCommunicator comm;
  std::vector<float> values(33);
  std::iota(values.begin(), values.end(), -4.5f);
  const std::vector<float> before = values;
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    EXPECT_EQ(comm.AllReduce(kCall, values, op), CommStatus::kOk);
    EXPECT_EQ(values, before);
  }
  std::vector<float> mine(values.size());
  EXPECT_EQ(comm.ReduceScatter(kCall, values, mine), CommStatus::kOk);
  EXPECT_EQ(mine, before);
  EXPECT_EQ(comm.Broadcast(kCall, std::as_writable_bytes(std::span(values)), 0), CommStatus::kOk);
  EXPECT_EQ(values, before);
}

TEST(SelfTest, SplitGivesAnotherRankAlone) {
  SelfCommunicator comm;
  const std::unique_ptr<Communicator> part = comm.Split(kCall, {.color = 5, .key = 2});
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(part->size(), 1);
  EXPECT_EQ(part->rank(), 0);
}

}  // namespace
}  // namespace tessera
