#include "core/check.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(CheckTest, FailThrowsOneFormattedLine) {
  try {
    Fail("{}: {} of {}", "file.bin", 3, 7);
    FAIL() << "Fail returned";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "file.bin: 3 of 7");
  }
}

TEST(CheckTest, ErrorIsARuntimeError) { EXPECT_THROW(Fail("plain"), std::runtime_error); }

TEST(CheckTest, TrueConditionEvaluatesOnceAndFormatsNothing) {
  int evaluations = 0;
  int formats = 0;
  const auto count_format = [&formats] { return ++formats; };
  TSR_CHECK(++evaluations == 1, "{}", count_format());
  EXPECT_EQ(evaluations, 1);
  EXPECT_EQ(formats, 0);
}

TEST(CheckDeathTest, FalseConditionAbortsWithConditionAndValues) {
  const int rows = 3;
  EXPECT_DEATH(TSR_CHECK(rows == 4, "rows {}, wanted {}", rows, 4), "check_test.cc:[0-9]+: check failed: rows == 4: rows 3, wanted 4");
}

TEST(CheckDeathTest, ValuesAreOptional) { EXPECT_DEATH(TSR_CHECK(1 > 2), "check failed: 1 > 2"); }

}  // namespace
}  // namespace tessera
