#include "core/memory_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/check.h"

namespace tessera {
namespace {

// The number in a one-line file; nullopt when there is none ("max", or no such file).
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// The value after `key` in a file of "key value" lines.
std::optional<int64_t> ReadKeyedNumber(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

struct CgroupFiles {
  const char* folder;       // where the controller is mounted
  const char* limit;
  const char* usage;
  const char* reclaimable;  // key of memory.stat: page cache not in active use
};
constexpr CgroupFiles kCgroupV1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr CgroupFiles kCgroupV2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

// Lowers `available` to the room of the cgroup `group` ("/a/b") and of every parent. In a container the path may be the host's and not
// exist here; the mount's own files are then the container's, and they are visited last in any case.
void ApplyCgroup(const CgroupFiles& files, const std::string& root, std::string group, AvailableMemory* available) {
  for (;;) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    const std::string folder = files.folder + group;
    const std::optional<int64_t> limit = ReadNumber(root + folder + "/" + files.limit);
    const std::optional<int64_t> usage = ReadNumber(root + folder + "/" + files.usage);
    if (limit && usage) {
      const int64_t cache = ReadKeyedNumber(root + folder + "/memory.stat", files.reclaimable).value_or(0);
      const int64_t room = std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - cache));
      if (room < available->bytes) *available = {room, "cgroup " + folder};
    }
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return;
    group.resize(slash);
  }
}

}  // namespace

AvailableMemory QueryAvailableMemory(const std::string& root) {
  const std::string meminfo = root + "/proc/meminfo";
  const std::optional<int64_t> kib = ReadKeyedNumber(meminfo, "MemAvailable:");
  if (!kib) Fail("{}: no MemAvailable line", meminfo);
  AvailableMemory available = {*kib * 1024, "host memory"};
  std::ifstream groups(root + "/proc/self/cgroup");  // "0::/path" is v2, "5:memory:/path" is v1
  std::string line;
  while (std::getline(groups, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") ApplyCgroup(kCgroupV2, root, group, &available);
    if (controllers.find(",memory,") != std::string::npos) ApplyCgroup(kCgroupV1, root, group, &available);
  }
  return available;
}

void MemoryReport::Add(std::string label, int64_t bytes, std::string note) {
  TSR_CHECK(bytes >= 0, "{}: {} bytes", label, bytes);
  TSR_CHECK(bytes <= std::numeric_limits<int64_t>::max() - total_bytes(), "{}: {} bytes overflow the sum", label, bytes);
  entries_.push_back({std::move(label), bytes, std::move(note)});
}

int64_t MemoryReport::total_bytes() const {
  int64_t total = 0;
  for (const MemoryEntry& entry : entries_) total += entry.bytes;
  return total;
}

void MemoryReport::CheckFits(const AvailableMemory& available) const {
  const int64_t total = total_bytes();
  if (total <= available.bytes) return;
  const auto by_bytes = [](const MemoryEntry& a, const MemoryEntry& b) { return a.bytes < b.bytes; };
  const MemoryEntry& largest = *std::max_element(entries_.begin(), entries_.end(), by_bytes);
  Fail("needs {} ({} bytes), {} ({} bytes) are available ({}); the largest part is {} with {}", FormatBytes(total), total,
       FormatBytes(available.bytes), available.bytes, available.limit, largest.label, FormatBytes(largest.bytes));
}

std::string MemoryReport::Table(const AvailableMemory& available) const {
  const std::string available_label = "available (" + available.limit + ")";
  size_t width = available_label.size();
  for (const MemoryEntry& entry : entries_) width = std::max(width, entry.label.size());
  std::string text;
  const auto add_line = [&](const std::string& label, int64_t bytes, const std::string& note) {
    text += fmt::format("{:<{}}  {:>10}{}{}\n", label, width, FormatBytes(bytes), note.empty() ? "" : "  ", note);
  };
  for (const MemoryEntry& entry : entries_) add_line(entry.label, entry.bytes, entry.note);
  add_line("total", total_bytes(), "");
  add_line(available_label, available.bytes, "");
  return text;
}

Json MemoryReport::ToJson(const AvailableMemory& available) const {
  Json entries = Json::array();
  for (const MemoryEntry& entry : entries_) {
    Json object = {{"label", entry.label}, {"bytes", entry.bytes}};
    if (!entry.note.empty()) object["note"] = entry.note;
    entries.push_back(std::move(object));
  }
  return {{"entries", std::move(entries)},
          {"total_bytes", total_bytes()},
          {"available_bytes", available.bytes},
          {"limit", available.limit}};
}

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"KB", "MB", "GB", "TB", "PB", "EB"};
  const std::string sign = bytes < 0 ? "-" : "";
  double value = std::fabs(static_cast<double>(bytes));
  if (value < 1000) return fmt::format("{}{:.0f} B", sign, value);
  size_t unit = 0;
  // 999,995 and more would print as "1000.00".
  for (value /= 1000; value >= 999.995 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return fmt::format("{}{:.2f} {}", sign, value, kUnits[unit]);
}

}  // namespace tessera
