// What a profile of steps says, for people and for programs: where the time of a step goes by region, beside the bytes that had to come
// from memory and the machine's measured stream bandwidth.
#pragma once

#include <span>
#include <string>

#include "core/json.h"
#include "plan/timing.h"

namespace tessera {

// A recorder for `max_steps` steps of any model's plans.
Timing MakeProfile(int32_t max_steps);

// The recorded steps, one report a bucket, regions by name.
std::vector<TimingReport> ProfileReports(const Timing& timing);

// A table under a heading with bucket, steps and rows; a line a region, then "outside" and "step". `stream_gb_per_s`: what 100 % of
// stream means, in units of 10^9 bytes; 0 leaves the column out.
std::string FormatProfile(const TimingReport& report, double stream_gb_per_s);

// The same numbers; times in seconds, rates in units of 10^9 a second.
Json ProfileJson(const TimingReport& report, double stream_gb_per_s);

}  // namespace tessera
