#include "tokenizer/chat_parser.h"

#include <gtest/gtest.h>

#include "tokenizer/utf8.h"
#include "tokenizer/v4_tokenizer.h"

namespace tessera {
namespace {

using testing::SourcePath;

const Json& Golden() {
  static const Json golden = Json::parse(ReadFile(SourcePath("tests/golden/chat/parse.json"), size_t{64} << 20));
  return golden;
}

ChatParseOptions OptionsOf(const Json& json) {
  ChatParseOptions options;
  const std::string stage = json.value("stage", "");
  if (stage == "ReasoningStart") options.stage = ParseStage::kReasoning;
  if (stage == "ReasoningContinuation") options.stage = ParseStage::kReasoningContinuation;
  if (stage == "ContentContinuation") options.stage = ParseStage::kContentContinuation;
  if (json.value("starts_in_tool_calls", false)) options.stage = ParseStage::kToolCalls;
  options.parse_tool_calls = json.value("parse_tool_calls", true);
  if (json.contains("stop_sequences")) options.stop_sequences = json["stop_sequences"].get<std::vector<std::string>>();
  return options;
}

// The result in the shape of the goldens.
Json Result(const std::vector<ChatDelta>& deltas, FinishReason reason) {
  const ParsedChat chat = CollectDeltas(deltas);
  Json calls = Json::array();
  for (const ParsedToolCall& call : chat.tool_calls) calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
  const Json reasoning = chat.reasoning_content.has_value() ? Json(*chat.reasoning_content) : Json(nullptr);
  return {{"reasoning_content", reasoning}, {"content", chat.content}, {"tool_calls", calls}, {"finish_reason", FinishReasonName(reason)}};
}

std::vector<std::string> Chunks(const std::string& text, size_t code_points) {
  std::vector<std::string> chunks;
  size_t pos = 0;
  while (pos < text.size()) {
    const size_t begin = pos;
    for (size_t i = 0; i < code_points && pos < text.size(); ++i) NextCodePoint(text, &pos);
    chunks.push_back(text.substr(begin, pos - begin));
  }
  return chunks;
}

Json ParseChunks(const std::vector<std::string>& chunks, const ChatParseOptions& options, bool hit_length) {
  ChatParser parser(options);
  std::vector<ChatDelta> deltas;
  for (const std::string& chunk : chunks) parser.FeedText(chunk, &deltas);
  const FinishReason reason = parser.Finish(hit_length, &deltas);
  return Result(deltas, reason);
}

Json ParseIds(const std::vector<int32_t>& ids, const ChatParseOptions& options, bool hit_length, const Tokenizer& tokenizer) {
  ChatParser parser(options, tokenizer);
  std::vector<ChatDelta> deltas;
  for (const int32_t id : ids) parser.FeedId(id, &deltas);
  const FinishReason reason = parser.Finish(hit_length, &deltas);
  return Result(deltas, reason);
}

// Runs check(case, expected) for the 222 checkable cases. The JSON-output mode of the reference, whose result depends on chunking, is not
// copied (ENCODING.md 5.5).
template <class Check>
int ForEachCase(Check&& check) {
  int count = 0;
  for (const char* version : {"v4", "v41"}) {
    for (const Json& entry : Golden()[version]) {
      if (entry["options"].contains("parse_json_output")) continue;
      SCOPED_TRACE(entry["name"].get<std::string>() + " " + version);
      check(entry, entry.contains("clean") ? entry["clean"] : entry["recipe"]);
      ++count;
    }
  }
  return count;
}

TEST(ChatParserTest, EveryGoldenTextInAnyChunks) {
  const int count = ForEachCase([](const Json& entry, const Json& expected) {
    const auto text = entry["text"].get<std::string>();
    const ChatParseOptions options = OptionsOf(entry["options"]);
    const bool hit_length = entry["finish"] == "Length";
    EXPECT_EQ(ParseChunks({text}, options, hit_length), expected);
    for (const size_t code_points : {1, 2, 3, 7}) {
      EXPECT_EQ(ParseChunks(Chunks(text, code_points), options, hit_length), expected) << code_points << " at a time";
    }
  });
  EXPECT_EQ(count, 222);
}

TEST(ChatParserTest, EveryGoldenTextCutInTwoAnywhere) {
  ForEachCase([](const Json& entry, const Json& expected) {
    const auto text = entry["text"].get<std::string>();
    const ChatParseOptions options = OptionsOf(entry["options"]);
    for (size_t pos = 0; pos < text.size() && !::testing::Test::HasFailure(); NextCodePoint(text, &pos)) {
      EXPECT_EQ(ParseChunks({text.substr(0, pos), text.substr(pos)}, options, entry["finish"] == "Length"), expected) << "cut at " << pos;
    }
  });
}

TEST(ChatParserTest, EveryGoldenTextAsIds) {
  TSR_SKIP_WITHOUT_V4_TOKENIZER();
  const Tokenizer& tokenizer = testing::V4Tokenizer();
  int num_plain = 0;
  ForEachCase([&](const Json& entry, const Json& expected) {
    const auto text = entry["text"].get<std::string>();
    const ChatParseOptions options = OptionsOf(entry["options"]);
    const bool hit_length = entry["finish"] == "Length";
    EXPECT_EQ(ParseIds(tokenizer.Encode(text, {.parse_special = true}), options, hit_length, tokenizer), expected);
    const Json variants = entry.value("variants", Json::object());
    if (!variants.contains("tokens_without_added_vocab")) return;
    EXPECT_EQ(ParseIds(tokenizer.Encode(text), options, hit_length, tokenizer), variants["tokens_without_added_vocab"]);
    ++num_plain;
  });
  EXPECT_GT(num_plain, 50);
}

TEST(ChatParserTest, ALongTextAtOnce) {
  constexpr int kNumCalls = 3000;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "é中 ";
  text += "\n\n<｜DSML｜ calls>";
  for (int i = 0; i < kNumCalls; ++i) {
    text += "<｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"k\" string=\"true\">v</｜DSML｜ parameter></｜DSML｜ invoke>";
  }
  const ParsedChat chat = ParseChatText(text, {});
  EXPECT_EQ(chat.content.size(), 20'000 * std::string("é中 ").size());
  ASSERT_EQ(chat.tool_calls.size(), static_cast<size_t>(kNumCalls));
  EXPECT_EQ(chat.tool_calls.back().arguments, R"({"k": "v"})");
}

TEST(ChatParserTest, TextIsEmittedAsSoonAsItIsDecided) {
  ChatParser parser({.stage = ParseStage::kReasoning});
  std::vector<ChatDelta> deltas;
  parser.FeedText("\n\nSo", &deltas);
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].kind, ChatDelta::Kind::kReasoning);
  EXPECT_EQ(deltas[0].text, "So");
  parser.FeedText(" a\n</thi", &deltas);
  EXPECT_EQ(deltas.back().text, " a");  // the newline and the half marker wait
  parser.FeedText("s", &deltas);
  EXPECT_EQ(deltas.back().text, "\n</this");
  parser.FeedText("</think>\nB<｜DSML｜x invoke name=\"f\">", &deltas);
  EXPECT_EQ(deltas.back().kind, ChatDelta::Kind::kToolCall);
  EXPECT_EQ(deltas.back().text, "f");
  parser.FeedText("parameter name=\"k\" string=\"true\">v", &deltas);
  EXPECT_EQ(deltas.back().text, "v");
  EXPECT_EQ(deltas.back().call_idx, 0);
  EXPECT_EQ(parser.Finish(false, &deltas), FinishReason::kToolCalls);
  const ParsedChat chat = CollectDeltas(deltas);
  EXPECT_EQ(chat.reasoning_content, "So a\n</this");
  EXPECT_EQ(chat.content, "B");
  EXPECT_EQ(chat.tool_calls.at(0).arguments, "{\"k\": \"v");
}

TEST(ChatParserTest, TheLongerOfTwoStopSequencesThatBeginsEarlierWins) {
  for (const size_t code_points : {1, 2, 5}) {
    ChatParser parser({.stop_sequences = {"ab", "xaby", ""}});
    std::vector<ChatDelta> deltas;
    for (const std::string& chunk : Chunks("12xabyz", code_points)) parser.FeedText(chunk, &deltas);
    EXPECT_TRUE(parser.found_stop());
    EXPECT_EQ(parser.Finish(true, &deltas), FinishReason::kStop);
    EXPECT_EQ(CollectDeltas(deltas).content, "12");
  }
}

TEST(ChatParserTest, HalfACharacterAtTheEndOfTheIdsBecomesAReplacement) {
  const Tokenizer tokenizer = Tokenizer::Load(SourcePath("models/tiny"));
  const auto first_byte = tokenizer.FindToken("Ã");  // byte 0xC3
  ASSERT_TRUE(first_byte.has_value());
  ChatParser parser({}, tokenizer);
  std::vector<ChatDelta> deltas;
  parser.FeedId(*first_byte, &deltas);
  EXPECT_TRUE(deltas.empty());
  parser.Finish(false, &deltas);
  EXPECT_EQ(CollectDeltas(deltas).content, kReplacementCharacter);
}

}  // namespace
}  // namespace tessera
