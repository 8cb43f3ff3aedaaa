// A chat request as data: the fields of a Chat Completions body that decide the prompt, every rule between them checked once. What is
// wrong with a request is its sender's error and carries an HTTP status: 422 for a field of the wrong type, 400 for a broken rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/json.h"
#include "tokenizer/chat_format.h"

namespace tessera {

enum class ChatRole : uint8_t { kSystem, kUser, kAssistant, kTool, kLatestReminder };

struct ChatToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text, as given
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string text;                 // parts joined by a blank line; empty for null
  std::string reasoning;            // assistant
  std::vector<ChatToolCall> calls;  // assistant
  std::string tool_call_id;         // tool
  bool is_prefix = false;           // the last message, an assistant's, which the model continues
};

struct ChatTool {
  std::string name;
  std::string description;
  Json parameters;  // an object
};

enum class ResponseFormat : uint8_t { kText, kJsonObject, kJsonSchema };

struct ChatRequest {
  std::vector<ChatMessage> messages;
  std::vector<ChatTool> tools;   // those that the prompt shows: none for tool_choice "none", one for a named choice
  bool must_call_tool = false;   // tool_choice "required" or named
  bool thinking = true;
  ReasoningEffort effort = ReasoningEffort::kHigh;
  ResponseFormat response_format = ResponseFormat::kText;
  Json schema;  // kJsonSchema
};

// The keys of a request that are read here; a body may hold others, which are its reader's business.
inline constexpr std::string_view kChatRequestKeys[] = {"messages",    "tools",    "tool_choice", "response_format",
                                                        "thinking", "reasoning_effort"};

// Throws RequestError naming the field.
ChatRequest ParseChatRequest(const Json& body);

}  // namespace tessera
