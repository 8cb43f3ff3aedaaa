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
            R"("prefill_rows":512,"kv_cache_mib":0,"prefix_cache_mib":512,"queue_limit":1024})");
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
  for (const char* name : {"threads", "max-context", "kv-cache-mib", "queue-limit"})
    EXPECT_THROW(ParseOption(FindOption(table, name), "-1"), Error) << name;
  for (const char* name : {"ranks", "max-seqs", "prefill-rows"}) EXPECT_THROW(ParseOption(FindOption(table, name), "0"), Error) << name;
}

}  // namespace
}  // namespace tessera
