#include "engine/admission.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/random.h"
#include "engine/step_runner.h"
#include "model/sequence_state.h"
#include "support/golden_model.h"

namespace tessera {
namespace {

TEST(AdmissionTest, TheBudgetIsWhatTheHostHasLeftWithinItsBounds) {
  const CacheDemand demand = {1000, 8, 50000};
  const auto budget = [&](int64_t available) { return ChooseCacheBudget(demand, {available, "host memory"}); };
  EXPECT_EQ(budget(57600), 57600 - 3600 - 50000);
  EXPECT_EQ(budget(1 << 20), 8000);  // no more than the slots can fill
  EXPECT_EQ(budget(54000), 1000);    // at least one sequence
  EXPECT_EQ(budget(0), 1000);
}

TEST(AdmissionTest, BytesAreReservedAndReturned) {
  Admission admission({{0, CacheKind::kCompressed, 100, 4096, 0, 1}}, 5 * 4096);
  EXPECT_EQ(admission.BytesFor(3), 3 * 4096);
  EXPECT_EQ(admission.bytes_per_token(), 4096);
  admission.Reserve(admission.BytesFor(3));
  EXPECT_EQ(admission.free_bytes(), 2 * 4096);
  admission.Return(3 * 4096);
  EXPECT_EQ(admission.free_bytes(), admission.budget_bytes());
}

TEST(AdmissionDeathTest, RefusesWhatDoesNotBalance) {
  Admission admission({}, 10);
  admission.Reserve(4);
  EXPECT_DEATH(admission.Reserve(7), "7 bytes of 6 free ones");
  EXPECT_DEATH(admission.Return(5), "5 bytes of 4 reserved ones");
}

// Pages of a slot's range that are in memory. Anonymous pages are not swapped out of a test that just wrote them.
int64_t ResidentBytesOf(const RowStore& store, int32_t slot) {
  const int64_t range_bytes = store.rows_per_slot * store.row_bytes;
  std::vector<unsigned char> resident(static_cast<size_t>((range_bytes + kCachePageBytes - 1) / kCachePageBytes));
  EXPECT_EQ(mincore(store.Slot(slot), static_cast<size_t>(range_bytes), resident.data()), 0);
  int64_t bytes = 0;
  for (const unsigned char page : resident) bytes += (page & 1) != 0 ? kCachePageBytes : 0;
  return bytes;
}

// What admission accounts for a sequence is at least what the host gives it, and at most a page more in each range: cut into chunks and
// decoded, in a slot of its own, for lengths at which rings and entries end on all sides of a page.
TEST(AdmissionTest, TheFormulaBoundsWhatTheHostSaysIsResident) {
  ASSERT_EQ(sysconf(_SC_PAGESIZE), kCachePageBytes);
  for (const std::string& dir : {testing::TinyDir(), testing::GoldenDir("v4_tiny"), testing::GoldenDir("v41_tiny")}) {
    const std::unique_ptr<Model> model = testing::OpenModel(dir);
    RunnerOptions options;
    options.num_workers = 2;
    options.max_seqs = 2;
    options.max_context = 700;
    options.prefill_rows = 64;
    StepRunner runner(*model, options);
    const Admission admission(runner.cache().layouts(), int64_t{1} << 40);
    for (const int64_t num_tokens : {1, 5, 63, 64, 65, 95, 160, 700}) {
      std::vector<int32_t> ids;
      for (int64_t i = 0; i < num_tokens; ++i)
        ids.push_back(
            static_cast<int32_t>(UniformDouble(4, 0, static_cast<uint64_t>(i)) * static_cast<double>(model->config().vocab_size)));
      testing::LogitsInChunks(runner, 1, ids, [&](int64_t first) { return first + 64 < num_tokens ? 64 : 3; });
      int64_t resident = 0;
      for (const CacheLayout& layout : runner.cache().layouts())
        resident += ResidentBytesOf(runner.cache().Store(layout.layer_idx, layout.kind), 1);
      const int64_t accounted = admission.BytesFor(num_tokens);
      const auto num_ranges = static_cast<int64_t>(runner.cache().layouts().size());
      EXPECT_GE(accounted, resident) << dir << ", " << num_tokens << " tokens";
      EXPECT_LE(accounted, resident + num_ranges * kCachePageBytes) << dir << ", " << num_tokens << " tokens";
      runner.cache().Release(1);
      for (const CacheLayout& layout : runner.cache().layouts())
        EXPECT_EQ(ResidentBytesOf(runner.cache().Store(layout.layer_idx, layout.kind), 1), 0);
    }
  }
}

}  // namespace
}  // namespace tessera
