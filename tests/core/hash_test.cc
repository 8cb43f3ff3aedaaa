#include "core/hash.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

uint64_t HashOf(std::string_view text) {
  Hasher hasher;
  hasher.Add(text);
  return hasher.value();
}

TEST(HashTest, IsFnv1aOf64Bits) {
  // Vectors of the published algorithm (draft-eastlake-fnv).
  EXPECT_EQ(HashOf(""), 0xcbf29ce484222325u);
  EXPECT_EQ(HashOf("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(HashOf("foobar"), 0x85944171f73967e8u);
}

TEST(HashTest, ANumberIsItsEightBytes) {
  Hasher number, bytes;
  number.Add(uint64_t{0x0807060504030201});
  bytes.Add(std::string_view("\1\2\3\4\5\6\7\10"));
  EXPECT_EQ(number.value(), bytes.value());
}

}  // namespace
}  // namespace tessera
