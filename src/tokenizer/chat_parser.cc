#include "tokenizer/chat_parser.h"

#include <algorithm>

#include "tokenizer/json_writer.h"

namespace tessera {
namespace {

constexpr size_t kNowhere = std::string::npos;
constexpr std::string_view kHeaderEnd = "\">";

size_t WithoutTrailingNewlines(std::string_view text, size_t length) {
  while (length > 0 && text[length - 1] == '\n') --length;
  return length;
}

}  // namespace

// A spelling to look for. With a control token inside (at token_begin) it counts, when ids are fed, only where that token stands.
struct ChatParser::Pattern {
  enum class Token : uint8_t { kNone, kEndThink, kDsml };
  std::string_view spelling;
  Token token = Token::kNone;
  size_t token_begin = 0;

  size_t token_end() const { return token_begin + (token == Token::kDsml ? chat_token::kDsml.size() : chat_token::kEndThink.size()); }

  static Pattern EndThink() { return {chat_token::kEndThink, Token::kEndThink, 0}; }
  static Pattern OpenTag() { return {"<｜DSML｜", Token::kDsml, 1}; }
  static Pattern CloseTag() { return {"</｜DSML｜", Token::kDsml, 2}; }
  static Pattern CloseBlockV4() { return {"</｜DSML｜tool_calls>", Token::kDsml, 2}; }
  static Pattern CloseBlockV41() { return {"</｜DSML｜ calls>", Token::kDsml, 2}; }
  static Pattern Invoke() { return {"invoke name=\""}; }
  static Pattern Parameter() { return {"parameter name=\""}; }
};

// The first match of several patterns (of those that begin together, the one listed first).
struct ChatParser::Scan {
  size_t pattern_idx = kNowhere;
  size_t begin = kNowhere;  // of the match
  size_t end = kNowhere;
  size_t num_decided = 0;  // without a match: bytes from the front that no pattern will ever touch
  bool found() const { return pattern_idx != kNowhere; }
};

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength: return "length";
    case FinishReason::kToolCalls: return "tool_calls";
    default: return "stop";
  }
}

ChatParser::ChatParser(ChatParseOptions options) : options_(std::move(options)) {
  switch (options_.stage) {
    case ParseStage::kReasoning:
    case ParseStage::kReasoningContinuation: state_ = State::kReasoning; break;
    case ParseStage::kContent:
    case ParseStage::kContentContinuation: state_ = State::kContent; break;
    case ParseStage::kToolCalls: state_ = State::kBetweenCalls; break;
  }
  is_at_start_ = options_.stage == ParseStage::kReasoning || options_.stage == ParseStage::kContent;
  std::erase_if(options_.stop_sequences, [](const std::string& stop) { return stop.empty(); });
}

ChatParser::ChatParser(ChatParseOptions options, const Tokenizer& tokenizer) : ChatParser(std::move(options)) {
  decoder_.emplace(tokenizer);
  end_think_id_ = tokenizer.FindToken(chat_token::kEndThink);
  dsml_id_ = tokenizer.FindToken(chat_token::kDsml);
}

void ChatParser::FeedText(std::string_view text, Deltas* deltas) {
  pending_ += text;
  Advance(deltas);
}

void ChatParser::FeedId(int32_t id, Deltas* deltas) {
  const bool is_dsml = id == dsml_id_;
  if (is_dsml || id == end_think_id_) {
    pending_ += decoder_->Finish();
    marks_.push_back({pending_.size(), is_dsml});
    pending_ += is_dsml ? chat_token::kDsml : chat_token::kEndThink;
  } else {
    pending_ += decoder_->Push(id);
  }
  Advance(deltas);
}

FinishReason ChatParser::Finish(bool hit_length, Deltas* deltas) {
  if (decoder_.has_value()) pending_ += decoder_->Finish();
  is_final_ = true;
  Advance(deltas);
  if (hit_length && !found_stop()) return FinishReason::kLength;
  return num_calls_ > 0 ? FinishReason::kToolCalls : FinishReason::kStop;
}

void ChatParser::Advance(Deltas* deltas) {
  while (Step(deltas)) {
  }
}

bool ChatParser::Step(Deltas* deltas) {
  switch (state_) {
    case State::kReasoning: return StepReasoning(deltas);
    case State::kContent: return StepContent(deltas);
    case State::kBetweenCalls: return StepBetweenCalls();
    case State::kInName: return StepInName(deltas);
    case State::kInCall: return StepInCall(deltas);
    case State::kInHeader: return StepInHeader(deltas);
    case State::kInValue: return StepInValue(deltas);
    case State::kDone:
    case State::kStopped: Drop(pending_.size()); return false;
  }
  return false;
}

bool ChatParser::StepReasoning(Deltas* deltas) {
  SkipLeadingNewlines();
  std::vector<Pattern> patterns = {Pattern::EndThink()};
  if (options_.parse_tool_calls) patterns.push_back(Pattern::OpenTag());
  const Scan scan = ScanFor(patterns);
  if (!scan.found()) {
    EmitFront(ChatDelta::Kind::kReasoning, scan.num_decided, !is_final_, deltas);
    return false;
  }
  const size_t num_text = WithoutTrailingNewlines(pending_, scan.begin);
  const size_t num_rest = scan.end - num_text;
  EmitFront(ChatDelta::Kind::kReasoning, num_text, false, deltas);
  is_at_start_ = true;
  Enter(scan.pattern_idx == 0 ? State::kContent : State::kBetweenCalls, num_rest);
  return true;
}

bool ChatParser::StepContent(Deltas* deltas) {
  SkipLeadingNewlines();
  std::vector<Pattern> patterns = {Pattern::EndThink()};
  if (options_.parse_tool_calls) patterns.push_back(Pattern::OpenTag());
  const size_t num_markers = patterns.size();
  for (const std::string& stop : options_.stop_sequences) patterns.push_back({stop});
  const Scan scan = ScanFor(patterns);
  if (!scan.found()) {
    EmitFront(ChatDelta::Kind::kContent, scan.num_decided, !is_final_, deltas);
    return false;
  }
  const bool is_open_tag = scan.pattern_idx == 1 && num_markers == 2;
  const size_t num_text = is_open_tag ? WithoutTrailingNewlines(pending_, scan.begin) : scan.begin;
  const size_t num_rest = scan.end - num_text;
  EmitFront(ChatDelta::Kind::kContent, num_text, false, deltas);
  is_at_start_ = false;
  State next = State::kContent;  // a stray </think> is deleted
  if (is_open_tag) next = State::kBetweenCalls;
  if (scan.pattern_idx >= num_markers) next = State::kStopped;
  Enter(next, num_rest);
  return true;
}

bool ChatParser::StepBetweenCalls() {
  const Scan scan = ScanFor({Pattern::Invoke(), Pattern::CloseBlockV4(), Pattern::CloseBlockV41()});
  if (!scan.found()) {
    Drop(scan.num_decided);
    return false;
  }
  Enter(scan.pattern_idx == 0 ? State::kInName : State::kDone, scan.end);
  return true;
}

bool ChatParser::StepInName(Deltas* deltas) {
  const size_t quote = pending_.find('"', num_searched_);
  num_searched_ = pending_.size();
  if (quote == kNowhere) return false;
  deltas->push_back({ChatDelta::Kind::kToolCall, pending_.substr(0, quote), num_calls_++});
  has_parameters_ = false;
  Enter(State::kInCall, quote + 1);
  return true;
}

bool ChatParser::StepInCall(Deltas* deltas) {
  const Scan scan = ScanFor({Pattern::Parameter(), Pattern::CloseTag()});
  if (!scan.found()) {
    Drop(scan.num_decided);
    return false;
  }
  if (scan.pattern_idx == 0) {
    Enter(State::kInHeader, scan.end);
  } else {
    EmitArguments(has_parameters_ ? "}" : "{}", deltas);
    Enter(State::kBetweenCalls, scan.end);
  }
  return true;
}

// pending_ starts with the parameter's name: NAME" string="true">
bool ChatParser::StepInHeader(Deltas* deltas) {
  const Pattern close_tag = Pattern::CloseTag();
  const size_t overlap = close_tag.spelling.size();
  const size_t from = num_searched_ > overlap ? num_searched_ - overlap : 0;
  const size_t header_end = pending_.find(kHeaderEnd, from);
  const size_t close = Locate(close_tag, from);
  num_searched_ = pending_.size();
  if (header_end == kNowhere && close == kNowhere) return false;
  if (close < header_end) {  // no header after all: the parameter is ignored
    Enter(State::kInCall, close + close_tag.spelling.size());
    return true;
  }
  const std::string_view header = std::string_view(pending_).substr(0, header_end);
  size_t name_bytes = header.find("\" string=\"");
  if (name_bytes == kNowhere) name_bytes = std::min(header.find('"'), header.size());
  value_is_string_ = !header.ends_with("\"false");
  std::string text = has_parameters_ ? ", " : "{";
  AppendJsonString(header.substr(0, name_bytes), &text);
  text += value_is_string_ ? ": \"" : ": ";
  EmitArguments(std::move(text), deltas);
  has_parameters_ = true;
  Enter(State::kInValue, header_end + kHeaderEnd.size());
  return true;
}

bool ChatParser::StepInValue(Deltas* deltas) {
  const Scan scan = ScanFor({Pattern::CloseTag()});
  const size_t value_bytes = scan.found() ? scan.begin : scan.num_decided;
  std::string text;
  if (value_is_string_) {
    AppendJsonEscaped(std::string_view(pending_).substr(0, value_bytes), &text);
    if (scan.found()) text += '"';
  } else {
    text = pending_.substr(0, value_bytes);
  }
  EmitArguments(std::move(text), deltas);
  if (!scan.found()) {
    Drop(value_bytes);
    return false;
  }
  Enter(State::kInCall, scan.end);
  return true;
}

// A match is taken only when nothing that arrives later could begin an earlier one, or an equally early one that is listed before it.
ChatParser::Scan ChatParser::ScanFor(const std::vector<Pattern>& patterns) const {
  Scan scan;
  size_t held = pending_.size();
  size_t held_pattern_idx = patterns.size();
  for (size_t i = 0; i < patterns.size(); ++i) {
    const size_t begin = Locate(patterns[i], 0);
    if (begin < scan.begin) {
      scan.begin = begin;
      scan.end = begin + patterns[i].spelling.size();
      scan.pattern_idx = i;
    }
    const size_t partial_begin = pending_.size() - (is_final_ ? 0 : PartialSuffix(patterns[i]));
    if (partial_begin < held) {
      held = partial_begin;
      held_pattern_idx = i;
    }
  }
  if (!scan.found() || held < scan.begin || (held == scan.begin && held_pattern_idx < scan.pattern_idx)) {
    scan = {};
    scan.num_decided = held;
  }
  return scan;
}

size_t ChatParser::Locate(const Pattern& pattern, size_t from) const {
  if (!decoder_.has_value() || pattern.token == Pattern::Token::kNone) return pending_.find(pattern.spelling, from);
  for (const Mark& mark : marks_) {
    if (mark.is_dsml != (pattern.token == Pattern::Token::kDsml) || mark.begin < from + pattern.token_begin) continue;
    const size_t begin = mark.begin - pattern.token_begin;
    if (pending_.compare(begin, pattern.spelling.size(), pattern.spelling) == 0) return begin;
  }
  return kNowhere;
}

// Length of the longest end of pending_ with which a later match of the pattern could begin.
size_t ChatParser::PartialSuffix(const Pattern& pattern) const {
  const std::string_view text = pending_;
  const bool needs_mark = decoder_.has_value() && pattern.token != Pattern::Token::kNone;
  for (size_t length = std::min(text.size(), pattern.spelling.size() - 1); length > 0; --length) {
    const size_t begin = text.size() - length;
    if (text.substr(begin) != pattern.spelling.substr(0, length)) continue;
    if (!needs_mark || length <= pattern.token_begin) return length;
    if (length < pattern.token_end()) continue;  // part of the spelling from ordinary tokens is not the token
    const auto is_here = [&](const Mark& mark) {
      return mark.begin == begin + pattern.token_begin && mark.is_dsml == (pattern.token == Pattern::Token::kDsml);
    };
    if (std::any_of(marks_.begin(), marks_.end(), is_here)) return length;
  }
  return 0;
}

void ChatParser::SkipLeadingNewlines() {
  if (!is_at_start_ || pending_.empty()) return;
  const size_t first = pending_.find_first_not_of('\n');
  Drop(first == kNowhere ? pending_.size() : first);
  is_at_start_ = first == kNowhere;
}

void ChatParser::Enter(State state, size_t drop) {
  Drop(drop);
  state_ = state;
  num_searched_ = 0;
}

// Emits the first `length` bytes of pending_; with keeps_newlines, the newlines at their end stay in pending_.
void ChatParser::EmitFront(ChatDelta::Kind kind, size_t length, bool keeps_newlines, Deltas* deltas) {
  if (keeps_newlines) length = WithoutTrailingNewlines(pending_, length);
  if (length == 0) return;
  deltas->push_back({kind, pending_.substr(0, length)});
  Drop(length);
}

void ChatParser::EmitArguments(std::string text, Deltas* deltas) const {
  if (!text.empty()) deltas->push_back({ChatDelta::Kind::kToolArguments, std::move(text), num_calls_ - 1});
}

void ChatParser::Drop(size_t length) {
  pending_.erase(0, length);
  std::erase_if(marks_, [length](const Mark& mark) { return mark.begin < length; });
  for (Mark& mark : marks_) mark.begin -= length;
}

ParsedChat CollectDeltas(const std::vector<ChatDelta>& deltas) {
  ParsedChat chat;
  for (const ChatDelta& delta : deltas) {
    switch (delta.kind) {
      case ChatDelta::Kind::kReasoning: chat.reasoning_content = chat.reasoning_content.value_or("") + delta.text; break;
      case ChatDelta::Kind::kContent: chat.content += delta.text; break;
      case ChatDelta::Kind::kToolCall: chat.tool_calls.push_back({delta.text, ""}); break;
      case ChatDelta::Kind::kToolArguments: chat.tool_calls.at(static_cast<size_t>(delta.call_idx)).arguments += delta.text; break;
    }
  }
  return chat;
}

ParsedChat ParseChatText(std::string_view text, const ChatParseOptions& options) {
  constexpr size_t kChunkBytes = 4096;  // each step looks through what is pending, so a long text is not fed at once
  ChatParser parser(options);
  std::vector<ChatDelta> deltas;
  while (!text.empty()) {
    size_t length = std::min(kChunkBytes, text.size());
    while (length < text.size() && (static_cast<uint8_t>(text[length]) & 0xc0) == 0x80) ++length;  // whole characters
    parser.FeedText(text.substr(0, length), &deltas);
    text.remove_prefix(length);
  }
  parser.Finish(false, &deltas);
  return CollectDeltas(deltas);
}

}  // namespace tessera
