#include "tokenizer/chat_request.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace tessera {
namespace {

constexpr size_t kToolNameBytesMax = 128;
constexpr int kMistyped = 422;
constexpr int kBrokenRule = 400;

// What the sender wrote may be quoted in the message, in one line and not at length.
template <class... Args>
[[noreturn]] void Refuse(int status, fmt::format_string<Args...> format, Args&&... args) {
  FailRequest(status, "{}", OneLine(fmt::format(format, std::forward<Args>(args)...), 400));
}

// The member, or null when it is absent or JSON null.
const Json* Field(const Json& object, const char* name) {
  const auto field = object.find(name);
  return field == object.end() || field->is_null() ? nullptr : &*field;
}

std::string StringOr(const Json& object, const char* name, const std::string& where, const std::string& fallback) {
  const Json* field = Field(object, name);
  if (field == nullptr) return fallback;
  if (!field->is_string()) Refuse(kMistyped, "{}.{}: expected a string", where, name);
  return field->get<std::string>();
}

std::string RequiredString(const Json& object, const char* name, const std::string& where) {
  if (Field(object, name) == nullptr) Refuse(kMistyped, "{}.{}: missing", where, name);
  return StringOr(object, name, where, "");
}

const Json& RequiredObject(const Json& object, const char* name, const std::string& where) {
  const Json* field = Field(object, name);
  if (field == nullptr || !field->is_object()) Refuse(kMistyped, "{}.{}: expected an object", where, name);
  return *field;
}

bool BoolOr(const Json& object, const char* name, const std::string& where, bool fallback) {
  const Json* field = Field(object, name);
  if (field == nullptr) return fallback;
  if (!field->is_boolean()) Refuse(kMistyped, "{}.{}: expected true or false", where, name);
  return field->get<bool>();
}

ChatRole ParseRole(const Json& message, const std::string& where) {
  const std::string role = RequiredString(message, "role", where);
  if (role == "system") return ChatRole::kSystem;
  if (role == "user") return ChatRole::kUser;
  if (role == "assistant") return ChatRole::kAssistant;
  if (role == "tool") return ChatRole::kTool;
  if (role == "latest_reminder") return ChatRole::kLatestReminder;
  Refuse(kMistyped, "{}.role: '{}' is none of system, user, assistant, tool, latest_reminder", where, role);
}

std::string ParseContent(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) Refuse(kMistyped, "{}.content: expected a string or a list of text parts", where);
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string part_where = fmt::format("{}.content[{}]", where, i);
    const Json& part = content[i];
    if (!part.is_object()) Refuse(kMistyped, "{}: expected an object", part_where);
    const std::string type = RequiredString(part, "type", part_where);
    if (type != "text") Refuse(kMistyped, "{}.type: '{}' is not supported, only text is", part_where, type);
    if (i > 0) text += "\n\n";
    text += RequiredString(part, "text", part_where);
  }
  return text;
}

std::vector<ChatToolCall> ParseToolCalls(const Json& calls, const std::string& where) {
  if (!calls.is_array()) Refuse(kMistyped, "{}.tool_calls: expected a list", where);
  if (calls.empty()) Refuse(kBrokenRule, "{}.tool_calls: the list is empty; leave it out", where);
  std::vector<ChatToolCall> parsed;
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string call_where = fmt::format("{}.tool_calls[{}]", where, i);
    if (!calls[i].is_object()) Refuse(kMistyped, "{}: expected an object", call_where);
    const Json& function = RequiredObject(calls[i], "function", call_where);
    parsed.push_back({RequiredString(calls[i], "id", call_where), RequiredString(function, "name", call_where + ".function"),
                      RequiredString(function, "arguments", call_where + ".function")});
  }
  return parsed;
}

ChatMessage ParseMessage(const Json& json, const std::string& where) {
  if (!json.is_object()) Refuse(kMistyped, "{}: expected an object", where);
  ChatMessage message;
  message.role = ParseRole(json, where);
  const Json* content = Field(json, "content");
  if (content != nullptr) message.text = ParseContent(*content, where);
  message.is_prefix = BoolOr(json, "prefix", where, false);
  if (message.role == ChatRole::kAssistant) {
    message.reasoning = StringOr(json, "reasoning_content", where, "");
    if (const Json* calls = Field(json, "tool_calls")) message.calls = ParseToolCalls(*calls, where);
    if (content == nullptr && message.calls.empty()) Refuse(kBrokenRule, "{}: an assistant message needs content or tool_calls", where);
  } else {
    if (content == nullptr) Refuse(kMistyped, "{}.content: expected a string or a list of text parts", where);
    if (message.role == ChatRole::kTool) message.tool_call_id = RequiredString(json, "tool_call_id", where);
  }
  return message;
}

// Each call of an assistant message has its result before the next assistant message, and each result has its call.
void CheckToolResults(const std::vector<ChatMessage>& messages) {
  std::unordered_map<std::string, bool> is_answered;
  size_t caller = 0;
  const auto check_answered = [&] {
    for (const ChatToolCall& call : messages[caller].calls) {
      if (!is_answered[call.id]) Refuse(kBrokenRule, "messages[{}].tool_calls: no tool message answers the call '{}'", caller, call.id);
    }
  };
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == ChatRole::kAssistant) {
      check_answered();
      caller = i;
      is_answered.clear();
      for (const ChatToolCall& call : messages[i].calls) is_answered.emplace(call.id, false);
    } else if (messages[i].role == ChatRole::kTool) {
      const auto call = is_answered.find(messages[i].tool_call_id);
      if (call == is_answered.end()) {
        Refuse(kBrokenRule, "messages[{}].tool_call_id: no call '{}' precedes it", i, messages[i].tool_call_id);
      }
      call->second = true;
    }
  }
  check_answered();
}

std::vector<ChatMessage> ParseMessages(const Json& body) {
  const Json* list = Field(body, "messages");
  if (list == nullptr || !list->is_array()) Refuse(kMistyped, "messages: expected a list");
  if (list->empty()) Refuse(kBrokenRule, "messages: the list is empty");
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < list->size(); ++i) messages.push_back(ParseMessage((*list)[i], fmt::format("messages[{}]", i)));
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool may_be_prefix = i + 1 == messages.size() && messages[i].role == ChatRole::kAssistant;
    if (messages[i].is_prefix && !may_be_prefix) {
      Refuse(kBrokenRule, "messages[{}].prefix: only the last message, an assistant's, may be one", i);
    }
  }
  CheckToolResults(messages);
  return messages;
}

void CheckToolName(const std::string& name, const std::string& where) {
  if (name.size() > kToolNameBytesMax) Refuse(kBrokenRule, "{}: {} bytes, at most {} are allowed", where, name.size(), kToolNameBytesMax);
  const auto is_allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_allowed)) {
    Refuse(kBrokenRule, "{}: only letters, digits, '_' and '-' are allowed, and at least one of them", where);
  }
}

std::vector<ChatTool> ParseTools(const Json& body) {
  std::vector<ChatTool> tools;
  const Json* list = Field(body, "tools");
  if (list == nullptr) return tools;
  if (!list->is_array()) Refuse(kMistyped, "tools: expected a list");
  std::unordered_set<std::string> names;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("tools[{}]", i);
    if (!(*list)[i].is_object()) Refuse(kMistyped, "{}: expected an object", where);
    if (StringOr((*list)[i], "type", where, "function") != "function") Refuse(kMistyped, "{}.type: only function is supported", where);
    const Json& function = RequiredObject((*list)[i], "function", where);
    const std::string function_where = where + ".function";
    ChatTool tool;
    tool.name = RequiredString(function, "name", function_where);
    CheckToolName(tool.name, function_where + ".name");
    if (!names.insert(tool.name).second) Refuse(kBrokenRule, "{}.name: '{}' stands twice", function_where, tool.name);
    tool.description = StringOr(function, "description", function_where, "");
    tool.parameters = Field(function, "parameters") != nullptr ? RequiredObject(function, "parameters", function_where) : Json::object();
    tools.push_back(std::move(tool));
  }
  return tools;
}

void ApplyToolChoice(const Json& body, ChatRequest* request) {
  const Json* choice = Field(body, "tool_choice");
  if (choice == nullptr) return;
  if (choice->is_object()) {
    const std::string name = RequiredString(RequiredObject(*choice, "function", "tool_choice"), "name", "tool_choice.function");
    std::erase_if(request->tools, [&](const ChatTool& tool) { return tool.name != name; });
    if (request->tools.empty()) Refuse(kBrokenRule, "tool_choice.function.name: '{}' is not among the tools", name);
    request->must_call_tool = true;
    return;
  }
  const std::string word = choice->is_string() ? choice->get<std::string>() : "";
  if (word == "none") {
    request->tools.clear();
  } else if (word == "required") {
    if (request->tools.empty()) Refuse(kBrokenRule, "tool_choice: 'required' without tools");
    request->must_call_tool = true;
  } else if (word != "auto") {
    Refuse(kMistyped, "tool_choice: expected none, auto, required or an object that names a function");
  }
}

// Thinking and effort decide each other: effort "none" turns thinking off unless the request itself turns it on.
void ParseThinking(const Json& body, ChatRequest* request) {
  std::optional<bool> thinking;
  if (const Json* field = Field(body, "thinking")) {
    if (field->is_object()) {
      const std::string type = RequiredString(*field, "type", "thinking");
      if (type != "enabled" && type != "disabled") Refuse(kMistyped, "thinking.type: '{}' is neither enabled nor disabled", type);
      thinking = type == "enabled";
    } else {
      thinking = BoolOr(body, "thinking", "request", true);
    }
  }
  const std::string effort = StringOr(body, "reasoning_effort", "request", "high");
  request->thinking = thinking.value_or(effort != "none");
  if (effort == "minimal" || effort == "low") {
    request->effort = ReasoningEffort::kLow;
  } else if (effort == "none" || effort == "medium" || effort == "high" || effort == "xhigh") {
    request->effort = ReasoningEffort::kHigh;
  } else if (effort == "ultra" || effort == "max") {
    request->effort = ReasoningEffort::kMax;
  } else {
    Refuse(kMistyped, "reasoning_effort: '{}' is none of none, minimal, low, medium, high, xhigh, ultra, max", effort);
  }
}

bool HasWordJson(const std::string& text) {
  constexpr std::string_view kWord = "json";
  const auto equal = [](char a, char b) { return (a | 0x20) == b; };
  return std::search(text.begin(), text.end(), kWord.begin(), kWord.end(), equal) != text.end();
}

void ParseResponseFormat(const Json& body, ChatRequest* request) {
  if (Field(body, "response_format") == nullptr) return;
  const Json& format = RequiredObject(body, "response_format", "request");
  const std::string type = RequiredString(format, "type", "response_format");
  if (type == "json_object") {
    request->response_format = ResponseFormat::kJsonObject;
    const auto mentions_json = [](const ChatMessage& message) { return HasWordJson(message.text); };
    if (std::none_of(request->messages.begin(), request->messages.end(), mentions_json)) {
      Refuse(kBrokenRule, "response_format: for json_object a message must contain the word 'json'");
    }
  } else if (type == "json_schema") {
    request->response_format = ResponseFormat::kJsonSchema;
    request->schema = RequiredObject(RequiredObject(format, "json_schema", "response_format"), "schema", "response_format.json_schema");
  } else if (type != "text") {
    Refuse(kMistyped, "response_format.type: '{}' is none of text, json_object, json_schema", type);
  }
}

}  // namespace

ChatRequest ParseChatRequest(const Json& body) {
  if (!body.is_object()) Refuse(kMistyped, "the request is not a JSON object");
  ChatRequest request;
  ParseThinking(body, &request);
  request.messages = ParseMessages(body);
  request.tools = ParseTools(body);
  ApplyToolChoice(body, &request);
  ParseResponseFormat(body, &request);
  if (request.must_call_tool && request.thinking) Refuse(kBrokenRule, "tool_choice: a call cannot be required while thinking is on");
  if (request.messages.back().is_prefix && !request.tools.empty()) {
    Refuse(kBrokenRule, "messages: a prefix message cannot stand with tools");
  }
  return request;
}

}  // namespace tessera
