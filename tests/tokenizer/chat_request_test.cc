#include "tokenizer/chat_request.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

// The request with one message "hi json" and these fields beside it.
Json Request(const std::string& fields) {
  return ParseJson(R"({"messages": [{"role": "user", "content": "hi json"}])" + (fields.empty() ? "" : ", " + fields) + "}", "test");
}

struct Refusal {
  int status = 0;  // 0: accepted
  std::string message;
};

Refusal RefusalOf(const Json& request) {
  try {
    ParseChatRequest(request);
    return {};
  } catch (const RequestError& error) {
    return {error.status(), error.what()};
  }
}

TEST(ChatRequestTest, Defaults) {
  const ChatRequest request = ParseChatRequest(Request(""));
  EXPECT_TRUE(request.thinking);
  EXPECT_EQ(request.effort, ReasoningEffort::kHigh);
  EXPECT_EQ(request.response_format, ResponseFormat::kText);
  EXPECT_FALSE(request.must_call_tool);
  EXPECT_TRUE(request.tools.empty());
  EXPECT_EQ(request.messages.at(0).text, "hi json");
}

TEST(ChatRequestTest, NullIsAbsent) {
  const Json request =
      Request(R"("tools": null, "tool_choice": null, "response_format": null, "thinking": null, "reasoning_effort": null)");
  EXPECT_EQ(RefusalOf(request).status, 0);
  EXPECT_TRUE(ParseChatRequest(request).thinking);
}

TEST(ChatRequestTest, ThinkingAndEffort) {
  EXPECT_FALSE(ParseChatRequest(Request(R"("reasoning_effort": "none")")).thinking);
  EXPECT_TRUE(ParseChatRequest(Request(R"("reasoning_effort": "none", "thinking": true)")).thinking);
  EXPECT_FALSE(ParseChatRequest(Request(R"("reasoning_effort": "max", "thinking": false)")).thinking);
  EXPECT_FALSE(ParseChatRequest(Request(R"("thinking": {"type": "disabled"})")).thinking);
  EXPECT_EQ(ParseChatRequest(Request(R"("reasoning_effort": "minimal")")).effort, ReasoningEffort::kLow);
  EXPECT_EQ(ParseChatRequest(Request(R"("reasoning_effort": "xhigh")")).effort, ReasoningEffort::kHigh);
  EXPECT_EQ(ParseChatRequest(Request(R"("reasoning_effort": "ultra")")).effort, ReasoningEffort::kMax);
}

TEST(ChatRequestTest, NamedToolChoiceKeepsOneTool) {
  const std::string tools = R"("thinking": false, "tools": [{"type": "function", "function": {"name": "a"}},
                              {"type": "function", "function": {"name": "b", "description": "d", "parameters": {"type": "object"}}}])";
  const ChatRequest named = ParseChatRequest(Request(tools + R"(, "tool_choice": {"type": "function", "function": {"name": "b"}})"));
  ASSERT_EQ(named.tools.size(), 1u);
  EXPECT_EQ(named.tools[0].name, "b");
  EXPECT_TRUE(named.must_call_tool);
  EXPECT_TRUE(ParseChatRequest(Request(tools + R"(, "tool_choice": "none")")).tools.empty());
  EXPECT_EQ(ParseChatRequest(Request(tools)).tools.at(0).parameters, Json::object());
}

TEST(ChatRequestTest, MistypedFieldsAre422AndBrokenRules400) {
  struct Case {
    const char* fields;
    int status;
    const char* names;  // what the message must name
  };
  constexpr Case kCases[] = {
      {R"("thinking": "yes")", 422, "thinking"},
      {R"("thinking": {"type": "maybe"})", 422, "thinking.type"},
      {R"("reasoning_effort": "extreme")", 422, "reasoning_effort"},
      {R"("tools": {})", 422, "tools"},
      {R"("tools": [1])", 422, "tools[0]"},
      {R"("tools": [{"type": "retrieval", "function": {"name": "a"}}])", 422, "tools[0].type"},
      {R"("tools": [{"function": {"name": "a", "parameters": []}}])", 422, "tools[0].function.parameters"},
      {R"("tools": [{"function": {"name": ""}}])", 400, "tools[0].function.name"},
      {R"("tools": [{"function": {"name": "a b"}}])", 400, "tools[0].function.name"},
      {R"("tool_choice": "sometimes")", 422, "tool_choice"},
      {R"("tool_choice": "required", "thinking": false)", 400, "tool_choice"},
      {R"("tool_choice": {"function": {"name": "x"}}, "thinking": false)", 400, "'x'"},
      {R"("response_format": {"type": "xml"})", 422, "response_format.type"},
      {R"("response_format": {"type": "json_schema"})", 422, "json_schema"},
  };
  for (const Case& c : kCases) {
    const Refusal refusal = RefusalOf(Request(c.fields));
    EXPECT_EQ(refusal.status, c.status) << c.fields;
    EXPECT_NE(refusal.message.find(c.names), std::string::npos) << refusal.message;
  }
}

TEST(ChatRequestTest, BrokenMessages) {
  struct Case {
    const char* messages;
    int status;
    const char* names;
  };
  constexpr Case kCases[] = {
      {R"(7)", 422, "messages"},
      {R"([7])", 422, "messages[0]"},
      {R"([{"content": "x"}])", 422, "messages[0].role"},
      {R"([{"role": "user", "content": [{"type": "image_url"}]}])", 422, "content[0].type"},
      {R"([{"role": "user", "content": ["x"]}])", 422, "content[0]"},
      {R"([{"role": "tool", "content": "x", "tool_call_id": "a"}])", 400, "no call 'a'"},
      {R"([{"role": "tool", "content": "x"}])", 422, "tool_call_id"},
      {R"([{"role": "assistant"}])", 400, "content or tool_calls"},
      {R"([{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {}}}]}])", 422, "arguments"},
      {R"([{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}])", 400, "'a'"},
      {R"([{"role": "user", "content": "x", "prefix": true}])", 400, "prefix"},
      {R"([{"role": "ro\nle", "content": "x"}])", 422, "ro?le"},
  };
  for (const Case& c : kCases) {
    const Refusal refusal = RefusalOf(ParseJson(std::string(R"({"messages": )") + c.messages + "}", "test"));
    EXPECT_EQ(refusal.status, c.status) << c.messages;
    EXPECT_NE(refusal.message.find(c.names), std::string::npos) << refusal.message;
  }
  EXPECT_EQ(RefusalOf(Json::array()).status, 422);
  EXPECT_EQ(RefusalOf(Json::object()).status, 422);
}

}  // namespace
}  // namespace tessera
