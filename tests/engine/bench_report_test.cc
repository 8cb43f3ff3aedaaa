#include "engine/bench_report.h"

#include <gtest/gtest.h>

#include "model/regions.h"

namespace tessera {
namespace {

MachineRates Rates(double stream, double fma, double bf16_dot) {
  MachineRates rates;
  rates.num_workers = 2;
  rates.stream_gb_per_s = {stream, stream - 1, stream + 1};
  rates.fma_gflop_per_s = {fma, fma, fma};
  rates.bf16_dot_gflop_per_s = {bf16_dot, bf16_dot, bf16_dot};
  return rates;
}

// 20 steps of 4 rows at 50 steps/s: 2e9 bytes and 4e9 flops each.
PhaseReport Phase() {
  PhaseReport phase;
  phase.num_steps = 20;
  phase.num_tokens = 80;
  phase.rows_per_step = 4;
  phase.tokens_per_s = {200, 190, 220};
  phase.bytes_per_step = 2e8;
  phase.flops_per_step = 4e9;
  TimingReport bucket;
  bucket.bucket_rows = 4;
  bucket.num_steps = 20;
  bucket.num_rows = 80;
  bucket.num_rows_min = bucket.num_rows_max = 4;
  RegionReport region;
  region.name = RegionName(kRegionExperts);
  region.num_ops = 16;
  region.seconds_total = 0.3;
  region.bytes = 4'000'000'000;
  bucket.regions.push_back(region);
  bucket.outside.name = "outside";
  bucket.outside.seconds_total = 0.1;
  bucket.step.name = "step";
  bucket.step.seconds_total = 0.4;
  phase.timing.push_back(bucket);
  return phase;
}

BenchReport Report() {
  BenchReport report;
  report.options.prefill = 80;
  report.options.decode = 20;
  report.options.batch = 4;
  report.options.context = 4096;
  report.tier = "avx512";
  report.rates = Rates(20, 300, 400);
  report.decode = report.prefill = Phase();
  return report;
}

TEST(BenchReportTest, JsonHasWhatTheInterfacePromises) {
  const Json json = BenchToJson(Report(), false);
  EXPECT_EQ(json["stream_gb_per_s"], 20);
  EXPECT_EQ(json["dot_gflop_per_s"], 400) << "the faster of fma and bf16 dot";
  EXPECT_EQ(json["fma_gflop_per_s"], 300);
  EXPECT_EQ(json["bf16_dot_gflop_per_s"], 400);
  for (const char* phase : {"decode", "prefill"}) {
    EXPECT_EQ(json[phase]["tokens_per_s"], 200);
    EXPECT_EQ(json[phase]["tokens_per_s_min"], 190);
    EXPECT_EQ(json[phase]["tokens_per_s_max"], 220);
    EXPECT_EQ(json[phase]["bytes_per_step"], 2e8);
    EXPECT_DOUBLE_EQ(json[phase]["ms_per_step"], 20);
    EXPECT_DOUBLE_EQ(json[phase]["gb_per_s"], 10);
    EXPECT_DOUBLE_EQ(json[phase]["percent_of_stream"], 50);
    EXPECT_DOUBLE_EQ(json[phase]["gflop_per_s"], 200);
    EXPECT_DOUBLE_EQ(json[phase]["percent_of_dot_peak"], 50);
    EXPECT_DOUBLE_EQ(json[phase]["percent_outside"], 25);
    EXPECT_EQ(json[phase]["context"], 4096);
  }
  EXPECT_EQ(json["decode"]["batch"], 4);
  EXPECT_FALSE(json["prefill"].contains("token_by_token_tokens_per_s"));
  EXPECT_TRUE(json["regions"].is_array() && json["regions"].empty());
}

TEST(BenchReportTest, PhasesThatDidNotRunAreLeftOut) {
  BenchReport report = Report();
  report.prefill.reset();
  report.token_by_token_tokens_per_s = 0;
  const Json json = BenchToJson(report, true);
  EXPECT_FALSE(json.contains("prefill"));
  EXPECT_EQ(json["regions"].size(), 3u) << "one region, outside, step";
  EXPECT_EQ(json["regions"][0]["phase"], "decode");
  EXPECT_EQ(json["regions"][0]["name"], RegionName(kRegionExperts));
  EXPECT_EQ(json["regions"][0]["bucket_rows"], 4);
  EXPECT_EQ(json["regions"][0]["bytes"], 4'000'000'000);
  EXPECT_EQ(json["regions"][1]["name"], "outside");
  EXPECT_EQ(json["regions"][2]["name"], "step");
  EXPECT_EQ(BenchToText(report, false).find("prefill"), std::string::npos);
}

TEST(BenchReportTest, ChunksAgainstTokens) {
  BenchReport report = Report();
  report.token_by_token_tokens_per_s = 40;
  EXPECT_DOUBLE_EQ(BenchToJson(report, false)["prefill"]["chunked_over_token_by_token"], 5);
  EXPECT_NE(BenchToText(report, false).find("5.00 times"), std::string::npos);
}

TEST(BenchReportTest, Text) {
  const std::string text = BenchToText(Report(), true);
  for (const char* part : {"200.00 tokens/s (190.00 to 220.00)", "50.0 % of stream", "50.0 % of the dot peak", "200.00 MB a step",
                           "prefill, bucket of 4 rows", "decode, bucket of 4 rows", "outside"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(BenchReportTest, Machine) {
  MachineReport report;
  report.tier = "avx512";
  report.by_workers = {Rates(10, 150, 80), Rates(20, 300, 160)};
  report.by_workers[0].num_workers = 1;
  report.by_workers[1].gather_gb_per_s = {8, 7, 9};
  report.lower_tiers.emplace_back("scalar", Rates(0, 7, 0));
  const Json json = MachineToJson(report);
  EXPECT_EQ(json["stream_gb_per_s"], 20) << "all workers";
  EXPECT_EQ(json["dot_gflop_per_s"], 300);
  EXPECT_EQ(json["gather_gb_per_s"], 8);
  EXPECT_EQ(json["by_workers"][0]["stream_gb_per_s"], 10);
  EXPECT_EQ(json["lower_tiers"][0]["tier"], "scalar");
  EXPECT_EQ(json["lower_tiers"][0]["fma_gflop_per_s"], 7);
  const std::string text = MachineToText(report);
  EXPECT_NE(text.find("1 worker: stream 10.00 GB/s"), std::string::npos) << text;
  EXPECT_NE(text.find("dot peak: 300.0 GFLOP/s"), std::string::npos) << text;
}

}  // namespace
}  // namespace tessera
