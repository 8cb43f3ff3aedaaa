// Reads what a model writes after a chat prompt: reasoning, content and tool calls, as deltas while it arrives. The result does not depend
// on how the text was cut: what may still turn out to be markup, or newlines in front of it, is held back until it is decided.
// Markup counts only as control tokens when ids are fed; the same characters from ordinary tokens are text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/chat_format.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace tessera {

struct ChatDelta {
  enum class Kind : uint8_t {
    kReasoning,      // text
    kContent,        // text
    kToolCall,       // a call begins; text is its name
    kToolArguments,  // more of the arguments of call call_idx, JSON text
  };
  Kind kind = Kind::kContent;
  std::string text;
  int call_idx = -1;
};

struct ParsedToolCall {
  std::string name;
  std::string arguments;  // as the model wrote it: perhaps incomplete, perhaps no valid JSON
};

enum class FinishReason : uint8_t { kStop, kLength, kToolCalls };
std::string_view FinishReasonName(FinishReason reason);  // "stop", "length", "tool_calls"

class ChatParser {
 public:
  explicit ChatParser(ChatParseOptions options);  // for text: every spelling of a control token counts as the token
  // For ids. A control token the tokenizer lacks never occurs. `tokenizer` must outlive the parser.
  ChatParser(ChatParseOptions options, const Tokenizer& tokenizer);

  // Appends what is decided now. A parser is fed either text, in whole characters, or ids. The end-of-sequence token is not fed.
  void FeedText(std::string_view text, std::vector<ChatDelta>* deltas);
  void FeedId(int32_t id, std::vector<ChatDelta>* deltas);
  // No more input. `hit_length`: the engine ended the text, not the model.
  FinishReason Finish(bool hit_length, std::vector<ChatDelta>* deltas);

  // A stop sequence was found: generation may end, further input is ignored.
  bool found_stop() const { return state_ == State::kStopped; }

 private:
  enum class State : uint8_t { kReasoning, kContent, kBetweenCalls, kInName, kInCall, kInHeader, kInValue, kDone, kStopped };
  struct Pattern;
  struct Scan;
  struct Mark {
    size_t begin;  // of the token's spelling in pending_
    bool is_dsml;  // else </think>
  };
  using Deltas = std::vector<ChatDelta>;

  void Advance(Deltas* deltas);
  bool Step(Deltas* deltas);  // false: nothing more can be decided
  bool StepReasoning(Deltas* deltas);
  bool StepContent(Deltas* deltas);
  bool StepBetweenCalls();
  bool StepInName(Deltas* deltas);
  bool StepInCall(Deltas* deltas);
  bool StepInHeader(Deltas* deltas);
  bool StepInValue(Deltas* deltas);

  Scan ScanFor(const std::vector<Pattern>& patterns) const;
  size_t Locate(const Pattern& pattern, size_t from) const;
  size_t PartialSuffix(const Pattern& pattern) const;
  void SkipLeadingNewlines();
  void Enter(State state, size_t drop);
  void EmitFront(ChatDelta::Kind kind, size_t length, bool keeps_newlines, Deltas* deltas);
  void EmitArguments(std::string text, Deltas* deltas) const;
  void Drop(size_t length);

  ChatParseOptions options_;
  std::optional<StreamDecoder> decoder_;  // set when ids are fed
  std::optional<int32_t> end_think_id_;
  std::optional<int32_t> dsml_id_;

  State state_ = State::kContent;
  bool is_at_start_ = false;  // of reasoning or content: newlines are skipped
  bool is_final_ = false;     // no more input
  std::string pending_;       // not decided yet
  std::vector<Mark> marks_;   // control tokens inside pending_, when ids are fed
  size_t num_searched_ = 0;   // bytes of pending_ known not to end the name or header it is in
  int num_calls_ = 0;
  bool has_parameters_ = false;
  bool value_is_string_ = false;
};

// The whole output at once.
struct ParsedChat {
  std::optional<std::string> reasoning_content;  // absent when empty or not thinking
  std::string content;
  std::vector<ParsedToolCall> tool_calls;
};
ParsedChat CollectDeltas(const std::vector<ChatDelta>& deltas);
ParsedChat ParseChatText(std::string_view text, const ChatParseOptions& options);

}  // namespace tessera
