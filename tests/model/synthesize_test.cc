#include "model/synthesize.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <numeric>

#include "core/check.h"
#include "core/file.h"
#include "model/model.h"
#include "model/synth_shape.h"
#include "support/checkpoint_copy.h"
#include "support/tensors.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::MessageOf;
using testing::SourcePath;
using testing::TemporaryFolder;

// Small enough for several shards of a tiny model; its Engram tables are larger.
constexpr int64_t kSmallShard = 1'000'000;

SynthPlan TinyPlan(const char* like, std::optional<int64_t> layers = {}) {
  // Every token its own compressed id: a map below the tokenizer.
  return PlanSynth(SynthConfigJson({.like = like, .layers = layers}, 512), {{"tokenizer.json", "{}"}}, kSmallShard);
}

std::vector<int32_t> IdentityMap() {
  std::vector<int32_t> map(512);
  std::iota(map.begin(), map.end(), 0);
  return map;
}

bool Write(const SynthPlan& plan, const std::string& dir, uint64_t seed = 3, int num_workers = 2) {
  SynthWriting writing;
  writing.seed = seed;
  writing.num_workers = num_workers;
  return WriteSynth(plan, dir, writing);
}

TEST(SynthesizeTest, ReleasedShapesHaveThePublishedTotals) {
  for (const auto& [like, folder] : {std::pair{"v4-flash", "v4_flash"}, {"v4-pro", "v4_pro"}, {"v4.1-flash", "v41_flash"}}) {
    const Json inventory = ReadJsonFile(SourcePath(std::string("tests/golden/configs/") + folder + "/inventory.json"));
    const SynthPlan plan = PlanSynth(SynthConfigJson({.like = like}), {});
    EXPECT_EQ(plan.num_tensors, inventory["tensors"].get<int64_t>()) << like;
    EXPECT_EQ(plan.tensor_bytes, inventory["bytes"].get<int64_t>()) << like;
    int64_t group_bytes = 0, tensors_in_files = 0;
    for (const GroupTotals& group : plan.groups) group_bytes += group.bytes;
    for (const SynthFile& file : plan.files) {
      tensors_in_files += static_cast<int64_t>(file.tensors.size());
      EXPECT_TRUE(file.bytes <= kShardBytes + static_cast<int64_t>(file.header.size()) || file.tensors.size() == 1) << file.name;
    }
    EXPECT_EQ(group_bytes, plan.tensor_bytes);
    EXPECT_EQ(tensors_in_files, plan.num_tensors);
  }
}

TEST(SynthesizeTest, WhatIsWrittenIsSoundAndOpens) {
  for (const char* like : {"tiny-v4", "tiny-v4.1"}) {
    const TemporaryFolder folder;
    const SynthPlan plan = TinyPlan(like);
    EXPECT_GT(plan.files.size(), 8u);
    ASSERT_TRUE(Write(plan, folder.path()));
    int64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
      bytes += static_cast<int64_t>(entry.file_size());
    }
    EXPECT_EQ(bytes, plan.file_bytes());
    const Checkpoint checkpoint = Checkpoint::Open(folder.path());
    EXPECT_EQ(static_cast<int64_t>(checkpoint.tensors().size()), plan.num_tensors);
    for (const CheckpointProblem& problem : VerifyCheckpoint(ReadModelConfig(folder.path()), checkpoint, true))
      ADD_FAILURE() << problem.message;
    for (const auto& [name, data] : checkpoint.tensors())
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data.bytes.data()) % static_cast<uintptr_t>(DtypeBytes(data.dtype)), 0u) << name;
    EXPECT_NO_THROW(Model(folder.path(), IdentityMap(), ClaimOptions{})) << like;
  }
}

TEST(SynthesizeTest, TheSameSeedGivesTheSameBytesWhoeverWrites) {
  // One file of several spans beside many small ones.
  for (const int64_t shard_bytes : {kSmallShard, kShardBytes}) {
    const SynthPlan plan = PlanSynth(SynthConfigJson({.like = "tiny-v4.1", .engram_rows = 100'000}, 512), {}, shard_bytes);
    const TemporaryFolder one, three, other;
    ASSERT_TRUE(Write(plan, one.path(), 3, 1));
    ASSERT_TRUE(Write(plan, three.path(), 3, 3));
    ASSERT_TRUE(Write(plan, other.path(), 4, 3));
    int64_t largest = 0;
    for (const auto& entry : fs::directory_iterator(one.path())) {
      const std::string name = entry.path().filename().string();
      const std::string content = ReadFile(entry.path().string(), size_t{1} << 30);
      EXPECT_TRUE(content == ReadFile(three.path() + "/" + name, size_t{1} << 30)) << name;
      EXPECT_EQ(content == ReadFile(other.path() + "/" + name, size_t{1} << 30), name.ends_with(".json")) << name;
      largest = std::max(largest, static_cast<int64_t>(content.size()));
    }
    if (shard_bytes == kShardBytes) EXPECT_GT(largest, 16 << 20) << "several spans";
  }
}

TEST(SynthesizeTest, FewerLayersAreTheBeginningOfMore) {
  const TemporaryFolder four, six;
  ASSERT_TRUE(Write(TinyPlan("tiny-v4", 4), four.path()));
  ASSERT_TRUE(Write(TinyPlan("tiny-v4"), six.path()));
  const Checkpoint cut = Checkpoint::Open(four.path()), whole = Checkpoint::Open(six.path());
  EXPECT_LT(cut.tensors().size(), whole.tensors().size());
  for (const auto& [name, data] : cut.tensors()) {
    const TensorData* same = whole.Find(name);
    ASSERT_NE(same, nullptr) << name;
    EXPECT_TRUE(std::equal(data.bytes.begin(), data.bytes.end(), same->bytes.begin(), same->bytes.end())) << name;
  }
}

TEST(SynthesizeTest, RefusesAFolderThatIsNotEmptyAndADiskThatIsFull) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("a", "content");
  SynthPlan plan = TinyPlan("tiny-v4");
  EXPECT_NE(MessageOf<Error>([&] { Write(plan, folder.path()); }).find("is not empty"), std::string::npos);
  EXPECT_NE(MessageOf<Error>([&] { Write(plan, file); }).find("no directory"), std::string::npos);
  EXPECT_NE(MessageOf<Error>([&] { Write(plan, file + "/below"); }).find(file), std::string::npos);
  plan.files.front().bytes = int64_t{1} << 60;
  const std::string refusal = MessageOf<Error>([&] { Write(plan, folder.path() + "/new/model"); });
  EXPECT_NE(refusal.find(fmt::format("needs {} bytes", plan.file_bytes())), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("available"), std::string::npos) << refusal;
  EXPECT_FALSE(fs::exists(folder.path() + "/new"));
}

TEST(SynthesizeTest, NothingStaysOfAnInterruptedOrFailedWrite) {
  const TemporaryFolder folder;
  const SynthPlan plan = TinyPlan("tiny-v4.1");
  SynthWriting writing;
  int num_looks = 0;
  writing.is_cancelled = [&] { return ++num_looks == 10; };
  EXPECT_FALSE(WriteSynth(plan, folder.path() + "/model", writing));
  EXPECT_FALSE(fs::exists(folder.path() + "/model"));
  EXPECT_FALSE(WriteSynth(plan, folder.path(), {.is_cancelled = [] { return true; }}));
  EXPECT_TRUE(fs::is_empty(folder.path())) << "a folder that was there stays";

  // A limit on the size of files stands for a disk that fills up meanwhile.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 64 << 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = MessageOf<Error>([&] { Write(plan, folder.path() + "/model"); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("cannot write"), std::string::npos) << message;
  EXPECT_NE(message.find(".safetensors"), std::string::npos) << message;
  EXPECT_FALSE(fs::exists(folder.path() + "/model"));
}

TEST(SynthesizeTest, ProgressReachesTheEnd) {
  const TemporaryFolder folder;
  const SynthPlan plan = TinyPlan("tiny-v4");
  int64_t last = 0;
  SynthWriting writing;
  writing.on_progress = [&](int64_t bytes_done) {
    EXPECT_GT(bytes_done, last);
    last = bytes_done;
  };
  ASSERT_TRUE(WriteSynth(plan, folder.path(), writing));
  int64_t shard_bytes = 0;
  for (const SynthFile& file : plan.files) shard_bytes += file.bytes;
  EXPECT_EQ(last, shard_bytes);
}

}  // namespace
}  // namespace tessera
