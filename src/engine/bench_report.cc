#include "engine/bench_report.h"

#include <fmt/format.h>

#include <utility>

#include "core/memory_report.h"
#include "engine/profile.h"

namespace tessera {
namespace {

double Percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

void AddRates(const MachineRates& rates, Json& json) {
  json["workers"] = rates.num_workers;
  json["stream_gb_per_s"] = rates.stream_gb_per_s.median;
  json["stream_gb_per_s_min"] = rates.stream_gb_per_s.min;
  json["stream_gb_per_s_max"] = rates.stream_gb_per_s.max;
  if (rates.gather_gb_per_s.median > 0) {
    json["gather_gb_per_s"] = rates.gather_gb_per_s.median;
    json["gather_gb_per_s_max"] = rates.gather_gb_per_s.max;
  }
  json["dot_gflop_per_s"] = rates.DotGflopPerS();
  json["fma_gflop_per_s"] = rates.fma_gflop_per_s.median;
  json["fma_gflop_per_s_max"] = rates.fma_gflop_per_s.max;
  json["bf16_dot_gflop_per_s"] = rates.bf16_dot_gflop_per_s.median;
  json["bf16_dot_gflop_per_s_max"] = rates.bf16_dot_gflop_per_s.max;
}

std::string DotText(const MachineRates& rates) {
  std::string text = fmt::format("fp32 fma {:.1f} GFLOP/s", rates.fma_gflop_per_s.median);
  if (rates.bf16_dot_gflop_per_s.median > 0) text += fmt::format(", bf16 dot {:.1f} GFLOP/s", rates.bf16_dot_gflop_per_s.median);
  return text;
}

Json PhaseToJson(const PhaseReport& phase, const MachineRates& rates) {
  return {{"tokens_per_s", phase.tokens_per_s.median},
          {"tokens_per_s_min", phase.tokens_per_s.min},
          {"tokens_per_s_max", phase.tokens_per_s.max},
          {"ms_per_step", 1e3 / phase.steps_per_s()},
          {"steps", phase.num_steps},
          {"rows_per_step", phase.rows_per_step},
          {"bytes_per_step", phase.bytes_per_step},
          {"flops_per_step", phase.flops_per_step},
          {"gb_per_s", phase.gb_per_s()},
          {"gflop_per_s", phase.gflop_per_s()},
          {"percent_of_stream", Percent(phase.gb_per_s(), rates.stream_gb_per_s.median)},
          {"percent_of_dot_peak", Percent(phase.gflop_per_s(), rates.DotGflopPerS())},
          {"percent_outside", 100 * phase.outside_share()}};
}

// One entry a region, and "outside" and "step", each with the phase and bucket it belongs to.
void AddRegions(const char* phase, const PhaseReport& report, double stream_gb_per_s, Json& regions) {
  for (const TimingReport& bucket : report.timing) {
    Json profile = ProfileJson(bucket, stream_gb_per_s);
    profile["regions"].push_back(profile["outside"]);
    profile["regions"].push_back(profile["step"]);
    for (Json& region : profile["regions"]) {
      region["phase"] = phase;
      region["bucket_rows"] = bucket.bucket_rows;
      region["steps"] = bucket.num_steps;
      region["rows"] = bucket.num_rows;
      regions.push_back(std::move(region));
    }
  }
}

void AddRegionTables(const char* phase, const PhaseReport& report, double stream_gb_per_s, std::string& text) {
  for (const TimingReport& bucket : report.timing) text += fmt::format("\n{}, {}", phase, FormatProfile(bucket, stream_gb_per_s));
}

}  // namespace

Json MachineToJson(const MachineReport& report) {
  Json json;
  AddRates(report.by_workers.back(), json);
  json["tier"] = report.tier;
  json["by_workers"] = Json::array();
  for (const MachineRates& rates : report.by_workers) AddRates(rates, json["by_workers"].emplace_back());
  json["lower_tiers"] = Json::array();
  for (const auto& [tier, rates] : report.lower_tiers)
    json["lower_tiers"].push_back({{"tier", tier}, {"fma_gflop_per_s", rates.fma_gflop_per_s.median}});
  return json;
}

std::string MachineToText(const MachineReport& report) {
  std::string text = fmt::format("tier {}, medians (least to largest)\n", report.tier);
  for (const MachineRates& rates : report.by_workers) {
    const RateSpread& stream = rates.stream_gb_per_s;
    const RateSpread& gather = rates.gather_gb_per_s;
    text += fmt::format("{} worker{}: stream {:.2f} GB/s ({:.2f} to {:.2f}), random rows of {} bytes {:.2f} GB/s ({:.2f} to {:.2f}), {}\n",
                        rates.num_workers, rates.num_workers == 1 ? "" : "s", stream.median, stream.min, stream.max, kGatherRowBytes,
                        gather.median, gather.min, gather.max, DotText(rates));
  }
  for (const auto& [tier, rates] : report.lower_tiers)
    text += fmt::format("tier {}, {} workers: {}\n", tier, rates.num_workers, DotText(rates));
  return text + fmt::format("dot peak: {:.1f} GFLOP/s, the faster of the two\n", report.by_workers.back().DotGflopPerS());
}

Json BenchToJson(const BenchReport& report, bool profile) {
  Json json;
  AddRates(report.rates, json);
  json["tier"] = report.tier;
  json["regions"] = Json::array();
  if (report.prefill) {
    Json& prefill = json["prefill"] = PhaseToJson(*report.prefill, report.rates);
    prefill["tokens"] = report.options.prefill;
    prefill["context"] = report.options.context;
    if (report.token_by_token_tokens_per_s > 0) {
      prefill["token_by_token_tokens_per_s"] = report.token_by_token_tokens_per_s;
      prefill["chunked_over_token_by_token"] = report.prefill->tokens_per_s.median / report.token_by_token_tokens_per_s;
    }
    if (profile) AddRegions("prefill", *report.prefill, report.rates.stream_gb_per_s.median, json["regions"]);
  }
  if (report.decode) {
    Json& decode = json["decode"] = PhaseToJson(*report.decode, report.rates);
    decode["batch"] = report.options.batch;
    decode["context"] = report.options.context;
    if (profile) AddRegions("decode", *report.decode, report.rates.stream_gb_per_s.median, json["regions"]);
  }
  return json;
}

std::string BenchToText(const BenchReport& report, bool profile) {
  const MachineRates& rates = report.rates;
  std::string text = fmt::format("{} worker{}, tier {}: stream {:.2f} GB/s ({:.2f} to {:.2f}), {}\n", rates.num_workers,
                                 rates.num_workers == 1 ? "" : "s", report.tier, rates.stream_gb_per_s.median, rates.stream_gb_per_s.min,
                                 rates.stream_gb_per_s.max, DotText(rates));
  const auto rate = [](const RateSpread& spread) {
    return fmt::format("{:.2f} tokens/s ({:.2f} to {:.2f})", spread.median, spread.min, spread.max);
  };
  if (const auto& prefill = report.prefill) {
    text += fmt::format(
        "prefill {} tokens at context {}: {}, {} steps of up to {} rows, {:.2f} ms each; {:.1f} GFLOP/s = {:.1f} % of the dot peak\n",
        report.options.prefill, report.options.context, rate(prefill->tokens_per_s), prefill->num_steps, prefill->rows_per_step,
        1e3 / prefill->steps_per_s(), prefill->gflop_per_s(), Percent(prefill->gflop_per_s(), rates.DotGflopPerS()));
    if (report.token_by_token_tokens_per_s > 0)
      text += fmt::format("  token by token {:.2f} tokens/s: chunks are {:.2f} times as fast\n", report.token_by_token_tokens_per_s,
                          prefill->tokens_per_s.median / report.token_by_token_tokens_per_s);
  }
  if (const auto& decode = report.decode) {
    text += fmt::format("decode batch {} at context {}: {}, {:.2f} ms a step; {} a step = {:.2f} GB/s = {:.1f} % of stream\n",
                        report.options.batch, report.options.context, rate(decode->tokens_per_s), 1e3 / decode->steps_per_s(),
                        FormatBytes(static_cast<int64_t>(decode->bytes_per_step)), decode->gb_per_s(),
                        Percent(decode->gb_per_s(), rates.stream_gb_per_s.median));
  }
  if (profile && report.prefill) AddRegionTables("prefill", *report.prefill, rates.stream_gb_per_s.median, text);
  if (profile && report.decode) AddRegionTables("decode", *report.decode, rates.stream_gb_per_s.median, text);
  return text;
}

}  // namespace tessera
