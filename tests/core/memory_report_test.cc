#include "core/memory_report.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// A host with 8 GiB left.
void WriteHost(const testing::TemporaryFolder& root, const std::string& groups) {
  root.Write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n");
  root.Write("proc/self/cgroup", groups);
}

TEST(AvailableMemoryTest, HostWithoutLimits) {
  const testing::TemporaryFolder root;
  WriteHost(root, "0::/user.slice\n");
  root.Write("sys/fs/cgroup/user.slice/memory.max", "max\n");
  root.Write("sys/fs/cgroup/user.slice/memory.current", "1000\n");
  const AvailableMemory available = QueryAvailableMemory(root.path());
  EXPECT_EQ(available.bytes, 8 * kGiB);
  EXPECT_EQ(available.limit, "host memory");
}

TEST(AvailableMemoryTest, CgroupV2CountsDroppableCacheAsRoom) {
  const testing::TemporaryFolder root;
  WriteHost(root, "0::/\n");
  root.Write("sys/fs/cgroup/memory.max", std::to_string(4 * kGiB));
  root.Write("sys/fs/cgroup/memory.current", std::to_string(3 * kGiB));
  root.Write("sys/fs/cgroup/memory.stat", "anon 5\ninactive_file " + std::to_string(kGiB) + "\nactive_file 7\n");
  const AvailableMemory available = QueryAvailableMemory(root.path());
  EXPECT_EQ(available.bytes, 2 * kGiB);
  EXPECT_EQ(available.limit, "cgroup /sys/fs/cgroup");
}

TEST(AvailableMemoryTest, AParentsLimitCounts) {
  const testing::TemporaryFolder root;
  WriteHost(root, "0::/a/b/c\n");
  root.Write("sys/fs/cgroup/a/b/c/memory.max", std::to_string(6 * kGiB));
  root.Write("sys/fs/cgroup/a/b/c/memory.current", "0");
  root.Write("sys/fs/cgroup/a/memory.max", std::to_string(kGiB));
  root.Write("sys/fs/cgroup/a/memory.current", std::to_string(2 * kGiB));  // over its limit: no room, not a negative one
  const AvailableMemory available = QueryAvailableMemory(root.path());
  EXPECT_EQ(available.bytes, 0);
  EXPECT_EQ(available.limit, "cgroup /sys/fs/cgroup/a");
}

TEST(AvailableMemoryTest, CgroupV1) {
  const testing::TemporaryFolder root;
  WriteHost(root, "12:cpu,cpuacct:/x\n5:memory:/docker/id\n");
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(3 * kGiB));  // the container's own view of its mount
  root.Write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(kGiB));
  root.Write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1024\n");
  EXPECT_EQ(QueryAvailableMemory(root.path()).bytes, 2 * kGiB + 1024);
}

TEST(AvailableMemoryTest, WithoutMeminfoThereIsAnError) {
  const testing::TemporaryFolder root;
  EXPECT_THROW((void)QueryAvailableMemory(root.path()), Error);
}

TEST(AvailableMemoryTest, ThisHostHasSome) { EXPECT_GT(QueryAvailableMemory().bytes, 0); }

TEST(MemoryReportTest, SumsPrintsAndRefuses) {
  MemoryReport report;
  EXPECT_EQ(report.total_bytes(), 0);
  report.Add("weights", 3'000'000'000, "mapped");
  report.Add("kv cache", 1'500);
  EXPECT_EQ(report.total_bytes(), 3'000'001'500);
  EXPECT_EQ(report.Table({4'000'000'000, "host memory"}),
            "weights                     3.00 GB  mapped\n"
            "kv cache                    1.50 KB\n"
            "total                       3.00 GB\n"
            "available (host memory)     4.00 GB\n");
  EXPECT_EQ(report.ToJson({7, "host memory"}).dump(),
            R"({"entries":[{"label":"weights","bytes":3000000000,"note":"mapped"},{"label":"kv cache","bytes":1500}],)"
            R"("total_bytes":3000001500,"available_bytes":7,"limit":"host memory"})");
  EXPECT_NO_THROW(report.CheckFits({3'000'001'500, "host memory"}));
  try {
    report.CheckFits({3'000'001'499, "cgroup /sys/fs/cgroup"});
    FAIL() << "a byte too much was let in";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "needs 3.00 GB (3000001500 bytes), 3.00 GB (3000001499 bytes) are available (cgroup /sys/fs/cgroup); the largest part is "
                 "weights with 3.00 GB");
  }
}

TEST(MemoryReportDeathTest, ImpossibleBytesAbort) {
  MemoryReport report;
  EXPECT_DEATH(report.Add("x", -1), "x: -1 bytes");
  report.Add("x", INT64_MAX);
  EXPECT_DEATH(report.Add("y", 1), "y: 1 bytes overflow");
}

TEST(FormatBytesTest, DecimalUnits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(1000), "1.00 KB");
  EXPECT_EQ(FormatBytes(999'994), "999.99 KB");
  EXPECT_EQ(FormatBytes(999'999), "1.00 MB");
  EXPECT_EQ(FormatBytes(159'610'000'000), "159.61 GB");
  EXPECT_EQ(FormatBytes(INT64_MAX), "9.22 EB");
  EXPECT_EQ(FormatBytes(-1500), "-1.50 KB");
}

}  // namespace
}  // namespace tessera
