// The two chat formats, V4 and V4.1: their control tokens, the exact texts of a prompt, and what rendering and parsing tell each other.
// The rules are in tests/golden/chat/ENCODING.md. Control tokens are known by content; their ids are the tokenizer's affair.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace tessera {

enum class ChatFormat : uint8_t { kV4, kV41 };

namespace chat_token {
inline constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kEndThink = "</think>";
inline constexpr std::string_view kSystem = "<｜System｜>";  // V4.1 only
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kDsml = "｜DSML｜";  // in tool markup; the "<", "</", tag name and ">" around it are ordinary text
}  // namespace chat_token

enum class ReasoningEffort : uint8_t { kLow, kHigh, kMax };

struct ChatStrings {
  std::string_view block;  // tag names of tool markup
  std::string_view invoke;
  std::string_view parameter;
  std::string_view tools_before_schemas;
  std::string_view tools_after_schemas;
  std::string_view effort[3];  // by ReasoningEffort
  std::string_view json_object;
  std::string_view json_schema;  // in front of the schema
};
const ChatStrings& StringsOf(ChatFormat format);

// Where the model's own text begins, as the prompt left it.
enum class ParseStage : uint8_t {
  kContent,                // thinking is off
  kContentContinuation,    // inside the answer of a prefix message
  kReasoning,              // the prompt opened <think>
  kReasoningContinuation,  // inside the reasoning of a prefix message
  kToolCalls,              // the prompt opened the tool block
};

struct ChatParseOptions {
  ParseStage stage = ParseStage::kContent;
  bool parse_tool_calls = true;              // off: tool markup is text
  std::vector<std::string> stop_sequences;   // searched in content only; empty ones are ignored
};

// The format of the model whose config.json is `config`. Throws Error "<what>: ..." for a model_type that is neither.
ChatFormat ChatFormatOf(const Json& config, const std::string& what);

}  // namespace tessera
