#include "tokenizer/chat_format.h"

#include "core/check.h"

namespace tessera {
namespace {

// Every text is what the models were trained on, byte for byte (tests/golden/chat/strings.json).
constexpr std::string_view kToolsAfterSchemas =
    "\n"
    "\n"
    "You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

constexpr std::string_view kJsonSchema =
    "## Response Format:\n"
    "\n"
    "You MUST strictly adhere to the following schema to reply:\n";

constexpr std::string_view kV4ToolsBeforeSchemas =
    "## Tools\n"
    "\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "
    "\"<｜DSML｜tool_calls>\" block like the following:\n"
    "\n"
    "<｜DSML｜tool_calls>\n"
    "<｜DSML｜invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜parameter>\n"
    "...\n"
    "</｜DSML｜invoke>\n"
    "<｜DSML｜invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>\n"
    "\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, "
    "booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n"
    "\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
    "<think>...</think> BEFORE any tool calls or final response.\n"
    "\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n"
    "\n"
    "### Available Tool Schemas\n"
    "\n";

constexpr std::string_view kV4EffortHigh =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root "
    "cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial "
    "scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n"
    "\n";

constexpr std::string_view kV4EffortMax =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively "
    "decompose the problem into its most fundamental components, trace every causal chain to its root, and "
    "resolve the underlying cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are "
    "certain that no assumption remains unchecked and no error remains undiscovered.\n"
    "\n";

constexpr std::string_view kV4JsonObject =
    "You are a helpful assistant designed to output JSON.\n"
    "## Response Format:\n"
    "\n"
    "Reply with JSON object ONLY.";

constexpr std::string_view kV41ToolsBeforeSchemas =
    "## Tools\n"
    "\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "
    "\"<｜DSML｜ calls>\" block like the following:\n"
    "\n"
    "<｜DSML｜ calls>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜ parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</｜DSML｜ parameter>\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "</｜DSML｜ calls>\n"
    "\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, "
    "booleans, arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n"
    "\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
    "<think>...</think> BEFORE any tool calls or final response.\n"
    "\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n"
    "\n"
    "### Available Tool Schemas\n"
    "\n";

constexpr std::string_view kV41EffortLow =
    "Reasoning Effort: 50 (range 1-100, the higher the value, the more thorough the reasoning)\n"
    "\n";

constexpr std::string_view kV41EffortHigh =
    "Reasoning Effort: 75 (range 1-100, the higher the value, the more thorough the reasoning)\n"
    "\n";

constexpr std::string_view kV41EffortMax =
    "Reasoning Effort: 100 (range 1-100, the higher the value, the more thorough the reasoning)\n"
    "\n";

constexpr std::string_view kV41JsonObject =
    "## Response Format:\n"
    "\n"
    "You MUST strictly adhere to the following schema to reply:\n"
    "{\"type\": \"json_object\"}";

constexpr ChatStrings kV4Strings = {
    .block = "tool_calls",
    .invoke = "invoke",
    .parameter = "parameter",
    .tools_before_schemas = kV4ToolsBeforeSchemas,
    .tools_after_schemas = kToolsAfterSchemas,
    .effort = {"", kV4EffortHigh, kV4EffortMax},
    .json_object = kV4JsonObject,
    .json_schema = kJsonSchema,
};

// The tag names start with a space.
constexpr ChatStrings kV41Strings = {
    .block = " calls",
    .invoke = " invoke",
    .parameter = " parameter",
    .tools_before_schemas = kV41ToolsBeforeSchemas,
    .tools_after_schemas = kToolsAfterSchemas,
    .effort = {kV41EffortLow, kV41EffortHigh, kV41EffortMax},
    .json_object = kV41JsonObject,
    .json_schema = kJsonSchema,
};

}  // namespace

const ChatStrings& StringsOf(ChatFormat format) { return format == ChatFormat::kV4 ? kV4Strings : kV41Strings; }

ChatFormat ChatFormatOf(const Json& config, const std::string& what) {
  const auto field = config.is_object() ? config.find("model_type") : config.end();
  if (!config.is_object() || field == config.end() || !field->is_string()) Fail("{}: model_type: missing or not a string", what);
  const auto& model_type = field->get_ref<const std::string&>();
  if (model_type.starts_with("deepseek_v41")) return ChatFormat::kV41;
  if (model_type.starts_with("deepseek_v4")) return ChatFormat::kV4;
  Fail("{}: model_type: '{}' has no chat format here", what, model_type);
}

}  // namespace tessera
