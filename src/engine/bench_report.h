// What `tessera bench` says: a report as JSON and as text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "engine/bench_run.h"
#include "kernels/machine_rate.h"

namespace tessera {

// Rates of one number of workers, and of the dot instructions by tier.
struct MachineReport {
  std::string tier;
  std::vector<MachineRates> by_workers;                          // ascending; the last is all of them
  std::vector<std::pair<std::string, MachineRates>> lower_tiers;  // dot rates of all workers
};

Json MachineToJson(const MachineReport& report);
std::string MachineToText(const MachineReport& report);

// `profile`: with the regions.
Json BenchToJson(const BenchReport& report, bool profile);
std::string BenchToText(const BenchReport& report, bool profile);

}  // namespace tessera
