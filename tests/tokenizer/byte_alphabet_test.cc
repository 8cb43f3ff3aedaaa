#include "tokenizer/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

namespace tessera {
namespace {

TEST(ByteAlphabetTest, EveryByteHasItsOwnCharacterAndComesBack) {
  std::set<std::string> spellings;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    const std::string spelling = BytesToAlphabet(bytes);
    EXPECT_TRUE(spellings.insert(spelling).second) << byte;
    EXPECT_EQ(BytesFromAlphabet(spelling), bytes);
  }
}

TEST(ByteAlphabetTest, KnownSpellings) {
  EXPECT_EQ(BytesToAlphabet(" the\n"), "ĠtheĊ");
  EXPECT_EQ(BytesToAlphabet("é"), "Ã©");
  EXPECT_EQ(BytesToAlphabet(std::string("\0\x7f\xad\xa0", 4)), "ĀġŃł");  // the gaps between the printable ranges
  EXPECT_EQ(BytesFromAlphabet("Ġa"), " a");
  EXPECT_EQ(BytesFromAlphabet(""), "");
}

TEST(ByteAlphabetTest, OtherCharactersSpellNoBytes) {
  EXPECT_EQ(BytesFromAlphabet(" "), std::nullopt);
  EXPECT_EQ(BytesFromAlphabet("<｜User｜>"), std::nullopt);
  EXPECT_EQ(BytesFromAlphabet("\u0144"), std::nullopt);  // the first code point behind the alphabet
  EXPECT_EQ(BytesFromAlphabet("😀"), std::nullopt);
}

}  // namespace
}  // namespace tessera
