#include "tokenizer/chat_format.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "support/tensors.h"

namespace tessera {
namespace {

TEST(ChatFormatTest, EveryTextIsTheGoldenOne) {
  const Json golden = ReadJsonFile(testing::SourcePath("tests/golden/chat/strings.json"));
  for (const auto& [key, format] : {std::pair{"v4", ChatFormat::kV4}, std::pair{"v41", ChatFormat::kV41}}) {
    const Json& expected = golden[key];
    const ChatStrings& strings = StringsOf(format);
    EXPECT_EQ(strings.block, expected["block"].get<std::string>());
    EXPECT_EQ(strings.invoke, expected["invoke"].get<std::string>());
    EXPECT_EQ(strings.parameter, expected["parameter"].get<std::string>());
    EXPECT_EQ(strings.tools_before_schemas, expected["tools_prompt_before_schemas"].get<std::string>());
    EXPECT_EQ(strings.tools_after_schemas, expected["tools_prompt_after_schemas"].get<std::string>());
    EXPECT_EQ(strings.effort[0], expected["effort_text"]["low"].get<std::string>());
    EXPECT_EQ(strings.effort[1], expected["effort_text"]["high"].get<std::string>());
    EXPECT_EQ(strings.effort[2], expected["effort_text"]["max"].get<std::string>());
    EXPECT_EQ(strings.json_object, expected["response_format_json_object"].get<std::string>());
    EXPECT_EQ(strings.json_schema, golden["response_format_schema_prefix"].get<std::string>());
  }
  const Json& tokens = golden["tokens"];
  EXPECT_EQ(chat_token::kBos, tokens["bos"].get<std::string>());
  EXPECT_EQ(chat_token::kEos, tokens["eos"].get<std::string>());
  EXPECT_EQ(chat_token::kThink, tokens["think"].get<std::string>());
  EXPECT_EQ(chat_token::kEndThink, tokens["end_think"].get<std::string>());
  EXPECT_EQ(chat_token::kSystem, tokens["system"].get<std::string>());
  EXPECT_EQ(chat_token::kUser, tokens["user"].get<std::string>());
  EXPECT_EQ(chat_token::kAssistant, tokens["assistant"].get<std::string>());
  EXPECT_EQ(chat_token::kLatestReminder, tokens["latest_reminder"].get<std::string>());
  EXPECT_EQ(chat_token::kDsml, tokens["dsml"].get<std::string>());
}

TEST(ChatFormatTest, FormatOfAConfig) {
  EXPECT_EQ(ChatFormatOf(ReadJsonFile(testing::SourcePath("models/tiny/config.json")), "config"), ChatFormat::kV41);
  EXPECT_EQ(ChatFormatOf(ReadJsonFile(testing::SourcePath("tests/golden/v4_tiny/config.json")), "config"), ChatFormat::kV4);
  EXPECT_THROW(ChatFormatOf(Json{{"model_type", "llama"}}, "config"), Error);
  EXPECT_THROW(ChatFormatOf(Json{{"model_type", 4}}, "config"), Error);
  EXPECT_THROW(ChatFormatOf(Json::array(), "config"), Error);
}

}  // namespace
}  // namespace tessera
