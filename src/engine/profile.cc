#include "engine/profile.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "model/regions.h"

namespace tessera {
namespace {

const std::array<std::string_view, kNumRegions>& RegionNames() {
  static const std::array<std::string_view, kNumRegions> names = [] {
    std::array<std::string_view, kNumRegions> all;
    for (uint16_t region = 0; region < kNumRegions; ++region) all[region] = RegionName(static_cast<Region>(region));
    return all;
  }();
  return names;
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// Cells that say nothing stay empty: "outside" has no ops, and some regions move activations only.
std::string Line(const RegionReport& line, const TimingReport& report, double stream_gb_per_s) {
  const double steps = static_cast<double>(report.num_steps), gb_per_s = line.bytes_per_second() * 1e-9;
  std::string text = fmt::format("{:<10} {:>5} {:>9.3f} {:>9.3f} {:>10.2f} {:>6.1f}", line.name,
                                 line.num_ops > 0 ? fmt::format("{}", line.num_ops) : "", line.seconds_min * 1e3, line.seconds_median * 1e3,
                                 line.seconds_total * 1e3, 100 * Share(line.seconds_total, report.step.seconds_total));
  const auto cell = [&](bool says, int width, int digits, double value) {
    text += says ? fmt::format(" {:>{}.{}f}", value, width, digits) : fmt::format(" {:>{}}", "", width);
  };
  cell(line.bytes > 0, 10, 3, static_cast<double>(line.bytes) / steps * 1e-6);
  cell(line.bytes > 0, 7, 2, gb_per_s);
  if (stream_gb_per_s > 0) cell(line.bytes > 0, 7, 1, 100 * gb_per_s / stream_gb_per_s);
  cell(line.flops > 0, 10, 3, static_cast<double>(line.flops) / steps * 1e-6);
  cell(line.flops > 0, 8, 2, line.flops_per_second() * 1e-9);
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

Json LineJson(const RegionReport& line, double stream_gb_per_s) {
  Json json;
  json["name"] = line.name;
  json["ops"] = line.num_ops;
  json["seconds_min"] = line.seconds_min;
  json["seconds_median"] = line.seconds_median;
  json["seconds_total"] = line.seconds_total;
  json["bytes"] = line.bytes;
  json["flops"] = line.flops;
  json["gb_per_s"] = line.bytes_per_second() * 1e-9;
  json["gflop_per_s"] = line.flops_per_second() * 1e-9;
  if (stream_gb_per_s > 0) json["stream_share"] = line.bytes_per_second() * 1e-9 / stream_gb_per_s;
  return json;
}

}  // namespace

Timing MakeProfile(int32_t max_steps) { return Timing(max_steps, kNumRegions); }

std::vector<TimingReport> ProfileReports(const Timing& timing) { return MakeTimingReports(timing, RegionNames()); }

std::string FormatProfile(const TimingReport& report, double stream_gb_per_s) {
  const std::string rows = report.num_rows_min == report.num_rows_max
                               ? fmt::format("{}", report.num_rows_min)
                               : fmt::format("{} to {} (mean {:.1f})", report.num_rows_min, report.num_rows_max,
                                             static_cast<double>(report.num_rows) / static_cast<double>(report.num_steps));
  std::string text = fmt::format("bucket of {} rows: {} step{} of {} row{}\n", report.bucket_rows, report.num_steps,
                                 report.num_steps == 1 ? "" : "s", rows, rows == "1" ? "" : "s");
  text += fmt::format("{:<10} {:>5} {:>9} {:>9} {:>10} {:>6} {:>10} {:>7}", "region", "ops", "min ms", "median ms", "total ms", "%",
                      "MB/step", "GB/s");
  if (stream_gb_per_s > 0) text += fmt::format(" {:>7}", "%stream");
  text += fmt::format(" {:>10} {:>8}\n", "Mflop/step", "GFLOP/s");
  for (const RegionReport& region : report.regions) text += Line(region, report, stream_gb_per_s);
  text += Line(report.outside, report, stream_gb_per_s);
  text += Line(report.step, report, stream_gb_per_s);
  return text;
}

Json ProfileJson(const TimingReport& report, double stream_gb_per_s) {
  Json json;
  json["bucket_rows"] = report.bucket_rows;
  json["steps"] = report.num_steps;
  json["rows"] = report.num_rows;
  json["rows_min"] = report.num_rows_min;
  json["rows_max"] = report.num_rows_max;
  if (stream_gb_per_s > 0) json["stream_gb_per_s"] = stream_gb_per_s;
  json["regions"] = Json::array();
  for (const RegionReport& region : report.regions) json["regions"].push_back(LineJson(region, stream_gb_per_s));
  json["outside"] = LineJson(report.outside, stream_gb_per_s);
  json["outside"]["share"] = report.outside_share();
  json["step"] = LineJson(report.step, stream_gb_per_s);
  return json;
}

}  // namespace tessera
