#include "engine/options.h"

#include <gtest/gtest.h>

#include <set>

#include "core/check.h"

namespace tessera {
namespace {

EngineOptions Parse(const std::string& json) {
  EngineOptions options;
  ParseOptions(EngineOptionTable(options), Json::parse(json), "options");
  return options;
}
std::string ErrorOf(const std::string& json) {
  try {
    Parse(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(EngineOptionsTest, EveryFieldIsSetByItsName) {
  const EngineOptions options =
      Parse(R"({"numerics": "reference", "threads": 3, "ranks": 2, "comm": "mpi", "engram": "file", "load": "copy",
                                          "max_seqs": 4, "max_context": 100000, "prefill_rows": 64})");
  EXPECT_EQ(options.numerics, Numerics::kReference);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.ranks, 2);
  EXPECT_EQ(options.comm, CommBackend::kMpi);
  EXPECT_EQ(options.engram, EngramPlacement::kFile);
  EXPECT_EQ(options.load, LoadMode::kCopy);
  EXPECT_EQ(options.max_seqs, 4);
  EXPECT_EQ(options.max_context, 100000);
  EXPECT_EQ(options.prefill_rows, 64);
}

// The names of a choice stand in the order of its values: a name that moved would choose another one.
TEST(EngineOptionsTest, EveryNameOfAChoiceMeansItsValue) {
  EXPECT_EQ(Parse(R"({"numerics": "bf16"})").numerics, Numerics::kBf16);
  EXPECT_EQ(Parse(R"({"numerics": "fp32"})").numerics, Numerics::kFp32);
  EXPECT_EQ(Parse(R"({"comm": "auto"})").comm, CommBackend::kAuto);
  EXPECT_EQ(Parse(R"({"comm": "shm"})").comm, CommBackend::kShm);
  EXPECT_EQ(Parse(R"({"engram": "auto"})").engram, EngramPlacement::kAuto);
  EXPECT_EQ(Parse(R"({"engram": "private"})").engram, EngramPlacement::kPrivate);
  EXPECT_EQ(Parse(R"({"engram": "shared"})").engram, EngramPlacement::kShared);
  EXPECT_EQ(Parse(R"({"engram": "sharded"})").engram, EngramPlacement::kSharded);
  EXPECT_EQ(Parse(R"({"load": "mmap"})").load, LoadMode::kMmap);
}

TEST(EngineOptionsTest, DefaultsAreThoseOfTheStruct) {
  EngineOptions options;
  const Json defaults = OptionsToJson(EngineOptionTable(options));
  EXPECT_EQ(defaults["numerics"], "bf16");
  EXPECT_EQ(defaults["threads"], 0);
  EXPECT_EQ(defaults["ranks"], 1);
  EXPECT_EQ(defaults["load"], "mmap");
  EXPECT_EQ(defaults["max_context"], 0);
  EXPECT_FALSE(defaults.contains("model_dir"));
}

TEST(EngineOptionsTest, NumbersOutOfBoundsAreRefusedByName) {
  EXPECT_EQ(ErrorOf(R"({"threads": -1})"), "options: threads: -1 is below the least, 0");
  EXPECT_EQ(ErrorOf(R"({"ranks": 0})"), "options: ranks: 0 is below the least, 1");
  EXPECT_EQ(ErrorOf(R"({"max_seqs": 0})"), "options: max_seqs: 0 is below the least, 1");
  EXPECT_EQ(ErrorOf(R"({"max_context": -1})"), "options: max_context: -1 is below the least, 0");
  EXPECT_EQ(ErrorOf(R"({"prefill_rows": 0})"), "options: prefill_rows: 0 is below the least, 1");
  EXPECT_EQ(ErrorOf(R"({"prefill_rows": 65537})"), "options: prefill_rows: 65537 is above the most, 65536");
}

TEST(EngineOptionsTest, NamesAreUniqueAndExplained) {
  EngineOptions options;
  std::set<std::string_view> names;
  for (const OptionField& field : EngineOptionTable(options)) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_FALSE(field.help.empty()) << field.name;
  }
}

}  // namespace
}  // namespace tessera
