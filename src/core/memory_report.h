// The ledger of memory: who needs how many bytes, and what this host (or container) has left. The engine fills it from the sizes it knows
// before anything is loaded, so a model that does not fit is refused with the sum in hand, and --memory-plan prints it and exits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"

namespace tessera {

struct MemoryEntry {
  std::string label;
  int64_t bytes = 0;
  std::string note;  // how the bytes come about, e.g. "8 slots x 890 B x 32768 tokens"; may be empty
};

// Bytes a process can still take without swapping or being killed, and the limit that says so ("host memory", "cgroup /sys/fs/...").
struct AvailableMemory {
  int64_t bytes = 0;
  std::string limit;
};
// The least of MemAvailable and the room in every cgroup (v1 and v2) this process is in, parents included; page cache that can be dropped
// counts as room. `root` stands before /proc and /sys (a test's folder). Throws Error when /proc/meminfo cannot be read.
AvailableMemory QueryAvailableMemory(const std::string& root = "");

class MemoryReport {
 public:
  void Add(std::string label, int64_t bytes, std::string note = "");

  const std::vector<MemoryEntry>& entries() const { return entries_; }
  int64_t total_bytes() const;

  // Throws Error with needed and available bytes, the largest entry and what limits, when the total does not fit.
  void CheckFits(const AvailableMemory& available) const;
  // A line per entry, the total and what is available.
  std::string Table(const AvailableMemory& available) const;
  // {"entries": [{"label", "bytes", "note"}], "total_bytes", "available_bytes", "limit"}
  Json ToJson(const AvailableMemory& available) const;

 private:
  std::vector<MemoryEntry> entries_;
};

// Decimal units with two places: "890 B", "1.50 KB", "12.30 MB", "159.61 GB".
std::string FormatBytes(int64_t bytes);

}  // namespace tessera
