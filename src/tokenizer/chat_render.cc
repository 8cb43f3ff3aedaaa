#include "tokenizer/chat_render.h"

#include <algorithm>
#include <unordered_map>

#include "core/check.h"
#include "tokenizer/json_writer.h"

namespace tessera {
namespace {

constexpr std::string_view kBlankLine = "\n\n";
constexpr int kArgumentsDepthMax = 127;  // as deep as the reference's JSON reader goes

class PromptWriter {
 public:
  void Text(std::string_view text) {
    if (text.empty()) return;
    if (pieces_.empty() || pieces_.back().is_special) pieces_.push_back({});
    pieces_.back().text += text;
  }
  void Special(std::string_view token) { pieces_.push_back({std::string(token), true}); }
  // A text of the format itself, in which the spellings of these three are the tokens.
  void Markup(std::string_view text) {
    while (!text.empty()) {
      size_t first = text.size();
      std::string_view token;
      for (const std::string_view candidate : {chat_token::kDsml, chat_token::kThink, chat_token::kEndThink}) {
        const size_t pos = text.find(candidate);
        if (pos < first) {
          first = pos;
          token = candidate;
        }
      }
      Text(text.substr(0, first));
      if (!token.empty()) Special(token);
      text.remove_prefix(first + token.size());
    }
  }
  std::vector<PromptPiece> Take() { return std::move(pieces_); }

 private:
  std::vector<PromptPiece> pieces_;
};

class Renderer {
 public:
  Renderer(const ChatRequest& request, ChatFormat format)
      : request_(request), is_v41_(format == ChatFormat::kV41), strings_(StringsOf(format)),
        double_style_(is_v41_ ? DoubleStyle::kPadded : DoubleStyle::kUnpadded) {}

  RenderedChat Render() {
    TakeMessages();
    MergeMessages();
    OrderToolResults();
    Head();
    for (size_t i = 0; i < messages_.size(); ++i) Message(i);
    Tail();
    return {out_.Take(), std::move(parse_)};
  }

 private:
  // Splits the messages into the system text of the head and the conversation. V4 gathers every system message, V4.1 only a first one.
  void TakeMessages() {
    for (const ChatMessage& message : request_.messages) {
      if (message.role != ChatRole::kSystem) {
        messages_.push_back(message);
      } else if (message.text.empty()) {
        continue;
      } else if (!is_v41_) {
        if (!system_text_.empty()) system_text_ += kBlankLine;
        system_text_ += message.text;
      } else if (messages_.empty() && system_text_.empty()) {
        system_text_ = message.text;
      } else {
        messages_.push_back(message);
      }
    }
  }

  void MergeMessages() {
    std::vector<ChatMessage> merged;
    for (ChatMessage& message : messages_) {
      const bool repeats = !merged.empty() && merged.back().role == message.role;
      if (repeats && message.role == ChatRole::kUser) {
        std::string& text = merged.back().text;
        if (is_v41_ || (!text.empty() && !message.text.empty())) text += kBlankLine;
        text += message.text;
      } else if (repeats && is_v41_ && message.role == ChatRole::kLatestReminder) {
        continue;  // V4.1 keeps the first of a run
      } else {
        merged.push_back(std::move(message));
      }
    }
    messages_ = std::move(merged);
  }

  // Results stand in the order of their calls inside each run of user and tool messages; V4 also sorts the calls themselves by id.
  void OrderToolResults() {
    std::unordered_map<std::string, size_t> order;
    for (size_t begin = 0; begin < messages_.size(); ++begin) {
      ChatMessage& message = messages_[begin];
      if (!message.calls.empty()) {
        const auto by_id = [](const ChatToolCall& a, const ChatToolCall& b) { return a.id < b.id; };
        if (!is_v41_) std::stable_sort(message.calls.begin(), message.calls.end(), by_id);
        order.clear();
        for (size_t i = 0; i < message.calls.size(); ++i) order.emplace(message.calls[i].id, i);
      }
      std::vector<size_t> places;
      size_t end = begin;
      for (; end < messages_.size(); ++end) {
        if (messages_[end].role == ChatRole::kTool) places.push_back(end);
        else if (messages_[end].role != ChatRole::kUser) break;
      }
      if (places.size() > 1) {
        std::vector<ChatMessage> results;
        for (const size_t place : places) results.push_back(std::move(messages_[place]));
        const auto rank = [&order](const ChatMessage& m) { return order.at(m.tool_call_id); };
        std::stable_sort(results.begin(), results.end(), [&](const ChatMessage& a, const ChatMessage& b) { return rank(a) < rank(b); });
        for (size_t i = 0; i < places.size(); ++i) messages_[places[i]] = std::move(results[i]);
      }
      if (end > begin) begin = end - 1;
    }
  }

  void Head() {
    const std::string_view effort = request_.thinking ? strings_.effort[static_cast<size_t>(request_.effort)] : "";
    has_extra_ = !request_.tools.empty() || request_.response_format != ResponseFormat::kText;
    out_.Special(chat_token::kBos);
    if (is_v41_) {
      if (messages_.empty() && system_text_.empty() && !has_extra_) return;
      if (!effort.empty() || !system_text_.empty() || has_extra_) out_.Special(chat_token::kSystem);
    }
    out_.Text(effort);
    out_.Text(system_text_);
    if (!request_.tools.empty()) Tools();
    if (request_.response_format == ResponseFormat::kJsonSchema) {
      out_.Text(kBlankLine);
      out_.Text(strings_.json_schema);
      out_.Text(JsonText(request_.schema));
    } else if (request_.response_format == ResponseFormat::kJsonObject) {
      out_.Text(kBlankLine);
      out_.Text(strings_.json_object);
    }
  }

  void Tools() {
    out_.Text(kBlankLine);
    out_.Markup(strings_.tools_before_schemas);
    std::string_view separator;
    for (const ChatTool& tool : request_.tools) {
      const Json line = {{"name", tool.name}, {"description", tool.description}, {"parameters", tool.parameters}};
      out_.Text(separator);
      out_.Text(JsonText(line));
      separator = "\n";
    }
    out_.Text(strings_.tools_after_schemas);
  }

  void Message(size_t idx) {
    const ChatMessage& message = messages_[idx];
    switch (message.role) {
      case ChatRole::kUser:
      case ChatRole::kTool: {
        const bool continues = idx > 0 && (messages_[idx - 1].role == ChatRole::kUser || messages_[idx - 1].role == ChatRole::kTool);
        if (continues) out_.Text(kBlankLine);
        else out_.Special(chat_token::kUser);
        if (message.role == ChatRole::kTool) out_.Text("<tool_result>");
        out_.Text(message.text);
        if (message.role == ChatRole::kTool) out_.Text("</tool_result>");
        break;
      }
      case ChatRole::kSystem:
        out_.Special(chat_token::kSystem);
        out_.Text(message.text);
        break;
      case ChatRole::kLatestReminder:
        out_.Special(chat_token::kLatestReminder);
        out_.Text(message.text);
        break;
      case ChatRole::kAssistant: Assistant(message, idx == 0); break;
    }
  }

  // With tools all old reasoning is kept, without tools all of it is dropped; a prefix message always keeps its own.
  void Assistant(const ChatMessage& message, bool is_first) {
    out_.Special(chat_token::kAssistant);
    const bool is_bare = is_v41_ && is_first && system_text_.empty() && !has_extra_;
    const bool shows_reasoning = request_.thinking && !is_bare && (message.is_prefix || !request_.tools.empty());
    const bool stays_in_reasoning = shows_reasoning && message.is_prefix && message.text.empty();
    if (shows_reasoning) {
      out_.Special(chat_token::kThink);
      out_.Text(message.reasoning);
    }
    if (!stays_in_reasoning) out_.Special(chat_token::kEndThink);
    out_.Text(message.text);
    if (!message.calls.empty()) Calls(message.calls);
    if (!message.is_prefix) return out_.Special(chat_token::kEos);
    has_prefix_ = true;
    if (!request_.thinking) {
      parse_.stage = ParseStage::kContent;  // the reference knows a continued answer only where there could be reasoning
    } else if (!message.text.empty()) {
      parse_.stage = ParseStage::kContentContinuation;
    } else if (stays_in_reasoning) {
      parse_.stage = message.reasoning.empty() ? ParseStage::kReasoning : ParseStage::kReasoningContinuation;
    }
  }

  void OpenTag(std::string_view name) {
    out_.Text("<");
    out_.Special(chat_token::kDsml);
    out_.Text(name);
  }
  void CloseTag(std::string_view name) {
    out_.Text("</");
    out_.Special(chat_token::kDsml);
    out_.Text(name);
    out_.Text(">");
  }
  void OpenBlock() {
    out_.Text(kBlankLine);
    OpenTag(strings_.block);
    out_.Text(">\n");
  }

  void Calls(const std::vector<ChatToolCall>& calls) {
    OpenBlock();
    for (const ChatToolCall& call : calls) {
      OpenTag(strings_.invoke);
      out_.Text(" name=\"" + call.name + "\">\n");
      const Json arguments = Arguments(call.arguments);
      for (const auto& [key, value] : arguments.items()) {
        OpenTag(strings_.parameter);
        out_.Text(" name=\"" + key + "\" string=\"" + (value.is_string() ? "true" : "false") + "\">");
        out_.Text(value.is_string() ? value.get<std::string>() : JsonText(value));
        CloseTag(strings_.parameter);
        out_.Text("\n");
      }
      if (arguments.empty() && is_v41_) out_.Text("\n");
      CloseTag(strings_.invoke);
      out_.Text("\n");
    }
    CloseTag(strings_.block);
  }

  // What is no JSON object becomes the one argument "arguments".
  static Json Arguments(const std::string& text) {
    const bool has_byte_order_mark = text.starts_with("\xef\xbb\xbf");  // which the parser would skip
    try {
      Json arguments = ParseJson(text, "arguments", {.depth_max = kArgumentsDepthMax});
      if (arguments.is_object() && !has_byte_order_mark) return arguments;
    } catch (const Error&) {
      // The sender is a model as often as a program; its broken JSON is shown back to it as it was.
    }
    return Json{{"arguments", text}};
  }

  void Tail() {
    if (has_prefix_) return;
    parse_.parse_tool_calls = !request_.tools.empty();
    out_.Special(chat_token::kAssistant);
    out_.Special(request_.thinking ? chat_token::kThink : chat_token::kEndThink);
    parse_.stage = request_.thinking ? ParseStage::kReasoning : ParseStage::kContent;
    if (request_.must_call_tool) {
      OpenBlock();
      parse_.stage = ParseStage::kToolCalls;
    }
  }

  std::string JsonText(const Json& value) const {
    std::string text;
    AppendJson(value, double_style_, &text);
    return text;
  }

  const ChatRequest& request_;
  const bool is_v41_;
  const ChatStrings& strings_;
  const DoubleStyle double_style_;
  std::string system_text_;
  std::vector<ChatMessage> messages_;
  bool has_extra_ = false;  // tools or a response format in the head
  bool has_prefix_ = false;
  PromptWriter out_;
  ChatParseOptions parse_{.parse_tool_calls = false};
};

}  // namespace

std::string RenderedChat::Text() const {
  std::string text;
  for (const PromptPiece& piece : pieces) text += piece.text;
  return text;
}

RenderedChat RenderChat(const ChatRequest& request, ChatFormat format) { return Renderer(request, format).Render(); }

std::vector<int32_t> PromptIds(const RenderedChat& chat, const Tokenizer& tokenizer) {
  constexpr std::string_view kIndispensable[] = {chat_token::kBos, chat_token::kUser, chat_token::kAssistant, chat_token::kEndThink};
  std::vector<int32_t> ids;
  for (const PromptPiece& piece : chat.pieces) {
    const std::optional<int32_t> token = piece.is_special ? tokenizer.FindToken(piece.text) : std::nullopt;
    if (token.has_value() && tokenizer.IsAdded(*token)) {
      ids.push_back(*token);
      continue;
    }
    if (piece.is_special && std::count(std::begin(kIndispensable), std::end(kIndispensable), piece.text) > 0) {
      Fail("the tokenizer has no token '{}', which the chat format needs", piece.text);
    }
    const std::vector<int32_t> text_ids = tokenizer.Encode(piece.text);
    ids.insert(ids.end(), text_ids.begin(), text_ids.end());
  }
  return ids;
}

}  // namespace tessera
