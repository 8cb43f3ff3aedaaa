#include "engine/profile.h"

#include <gtest/gtest.h>

#include "model/regions.h"
#include "support/golden_model.h"

namespace tessera {
namespace {

// Two steps of one region: 10 ms and 30 ms of walls of 20 ms and 40 ms, 100 MB and 2 Mflop each.
TimingReport SmallReport() {
  TimingReport report;
  report.bucket_rows = 4;
  report.num_steps = 2;
  report.num_rows = 5;
  report.num_rows_min = 2;
  report.num_rows_max = 3;
  report.regions.push_back({"experts", 7, 0.010, 0.020, 0.040, 200000000, 4000000});
  report.outside = {"outside", 0, 0.010, 0.010, 0.020, 0, 0};
  report.step = {"step", 7, 0.020, 0.030, 0.060, 200000000, 4000000};
  return report;
}

TEST(ProfileTest, TableHasALineARegionAndWhatIsOutside) {
  EXPECT_EQ(FormatProfile(SmallReport(), 10),
            "bucket of 4 rows: 2 steps of 2 to 3 (mean 2.5) rows\n"
            "region       ops    min ms median ms   total ms      %    MB/step    GB/s %stream Mflop/step  GFLOP/s\n"
            "experts        7    10.000    20.000      40.00   66.7    100.000    5.00    50.0      2.000     0.10\n"
            "outside             10.000    10.000      20.00   33.3\n"
            "step           7    20.000    30.000      60.00  100.0    100.000    3.33    33.3      2.000     0.07\n");
  EXPECT_EQ(FormatProfile(SmallReport(), 0).find("%stream"), std::string::npos);
}

TEST(ProfileTest, JsonHasTheSameNumbers) {
  const Json json = ProfileJson(SmallReport(), 10);
  EXPECT_EQ(json["bucket_rows"], 4);
  EXPECT_EQ(json["steps"], 2);
  EXPECT_EQ(json["rows"], 5);
  EXPECT_EQ(json["regions"][0]["name"], "experts");
  EXPECT_EQ(json["regions"][0]["bytes"], 200000000);
  EXPECT_NEAR(json["regions"][0]["gb_per_s"].get<double>(), 5.0, 1e-12);
  EXPECT_NEAR(json["regions"][0]["stream_share"].get<double>(), 0.5, 1e-12);
  EXPECT_NEAR(json["outside"]["share"].get<double>(), 1.0 / 3, 1e-12);
  EXPECT_FALSE(ProfileJson(SmallReport(), 0)["step"].contains("stream_share"));
}

TEST(ProfileTest, StepsOfAModelFallIntoItsRegions) {
  const std::unique_ptr<Model> model = testing::OpenModel(testing::TinyDir());
  RunnerOptions options;
  options.num_workers = 2;
  options.max_context = 100;
  options.prefill_rows = 32;
  StepRunner runner(*model, options);
  Timing timing = MakeProfile(8);
  const std::vector<int32_t> ids(30, 5);
  runner.SetTiming(&timing);
  testing::LogitsInChunks(runner, 0, ids, [](int64_t position) { return position == 0 ? 26 : 1; });
  runner.SetTiming(nullptr);
  testing::LogitsInChunks(runner, 1, ids, [](int64_t) { return 30; });
  const std::vector<TimingReport> reports = ProfileReports(timing);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].bucket_rows, 1);
  EXPECT_EQ(reports[0].num_steps, 4);
  EXPECT_EQ(reports[1].bucket_rows, 32);
  EXPECT_EQ(reports[1].num_rows, 26);
  for (const TimingReport& report : reports) {
    EXPECT_EQ(report.step.num_ops, static_cast<int64_t>(runner.plans().plan(0).num_ops()));
    std::string names;
    double sum = report.outside.seconds_total;
    for (const RegionReport& region : report.regions) {
      names += std::string(region.name) + " ";
      sum += region.seconds_total;
      EXPECT_GT(region.seconds_min, 0) << region.name;
    }
    for (const Region region : {kRegionInputs, kRegionMix, kRegionAttend, kRegionExperts, kRegionHead})
      EXPECT_NE(names.find(RegionName(region)), std::string::npos) << names;
    EXPECT_EQ(names.find(RegionName(kRegionRecord)), std::string::npos) << names;
    EXPECT_GT(report.outside.seconds_min, 0);
    EXPECT_NEAR(sum, report.step.seconds_total, 1e-9);
  }
}

}  // namespace
}  // namespace tessera
