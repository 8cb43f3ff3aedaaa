#include "engine/options.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "core/check.h"

namespace tessera {
namespace {

// The names and defaults a user relies on; a changed default must be changed here on purpose.
TEST(EngineOptionsTest, NamesAndDefaults) {
  EngineOptions options;
  EXPECT_EQ(OptionsToJson(EngineOptionTable(options)).dump(),
            R"({"numerics":"bf16","threads":0,"ranks":1,"comm":"auto","engram":"auto","load":"mmap","max_seqs":8,"max_context":0,)"
            R"("prefill_rows":512})");
}

TEST(EngineOptionsTest, EveryNameOfAnEnumSetsItsValue) {
  EngineOptions options;
  const OptionTable table = EngineOptionTable(options);
  for (const OptionField& field : table)
    if (const EnumOption* option = std::get_if<EnumOption>(&field.value))
      for (const std::string_view name : option->names) {
        ParseOption(field, name);
        EXPECT_EQ(FormatOption(field), name);
      }
  EXPECT_EQ(options.numerics, Numerics::kFp32);
  EXPECT_EQ(options.comm, CommBackend::kMpi);
  EXPECT_EQ(options.engram, EngramPlacement::kFile);
  EXPECT_EQ(options.load, LoadMode::kCopy);
}

TEST(EngineOptionsTest, EveryFieldHasASentenceAndANameOfItsOwn) {
  EngineOptions options;
  std::set<std::string_view> names;
  for (const OptionField& field : EngineOptionTable(options)) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_FALSE(field.help.empty()) << field.name;
  }
}

TEST(EngineOptionsTest, ImpossibleSizesAreErrors) {
  EngineOptions options;
  const OptionTable table = EngineOptionTable(options);
  for (const char* name : {"threads", "max-context"}) EXPECT_THROW(ParseOption(FindOption(table, name), "-1"), Error) << name;
  for (const char* name : {"ranks", "max-seqs", "prefill-rows"}) EXPECT_THROW(ParseOption(FindOption(table, name), "0"), Error) << name;
}

EngineOptions Parse(const std::string& json) {
  EngineOptions options;
  ParseOptions(EngineOptionTable(options), Json::parse(json), "options");
  return options;
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

}  // namespace
}  // namespace tessera
