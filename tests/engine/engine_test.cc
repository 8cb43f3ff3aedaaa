#include "engine/engine.h"

#include <gtest/gtest.h>

#include <map>

#include "core/check.h"
#include "core/random.h"
#include "support/golden_model.h"

namespace tessera {
namespace {

EngineOptions TinyOptions() {
  EngineOptions options;
  options.model_dir = testing::TinyDir();
  options.threads = 2;
  options.max_seqs = 3;
  options.max_context = 256;
  options.prefill_rows = 32;
  return options;
}

struct Answer {
  std::vector<int32_t> ids;
  std::string text;
  EndReason end_reason = EndReason::kNone;
};

// Runs what was submitted to the end.
std::map<Ticket, Answer> RunAll(Engine& engine) {
  std::map<Ticket, Answer> answers;
  std::vector<Event> events;
  while (engine.Step(events)) {
  }
  for (const Event& event : events) {
    Answer& answer = answers[event.ticket];
    if (event.token_id >= 0) answer.ids.push_back(event.token_id);
    answer.text += event.text;
    if (event.end_reason != EndReason::kNone) answer.end_reason = event.end_reason;
  }
  return answers;
}

Request PromptOf(const Engine& engine, const std::string& text, int64_t max_tokens, float temperature = 0, uint64_t seed = 0) {
  Request request;
  request.prompt_ids = engine.tokenizer()->Encode(text);
  request.prompt_ids.insert(request.prompt_ids.begin(), 0);
  request.max_tokens = max_tokens;
  request.sampling.temperature = temperature;
  request.sampling.seed = seed;
  request.ignore_eos = true;
  return request;
}

TEST(EngineTest, MoreRequestsThanSlotsEachAsIfAlone) {
  const std::unique_ptr<Engine> engine = Engine::Open(TinyOptions());
  const std::vector<std::string> prompts = {"Once upon a time",           "In the beginning", "It is a truth", "The king said", "a",
                                            "She walked to the river and"};
  std::vector<Answer> alone;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Ticket ticket = engine->Submit(PromptOf(*engine, prompts[i], 20 + static_cast<int64_t>(i), i % 2 == 0 ? 0.0f : 0.8f, i));
    alone.push_back(RunAll(*engine).at(ticket));
  }
  std::vector<Ticket> tickets;
  for (size_t i = 0; i < prompts.size(); ++i)
    tickets.push_back(engine->Submit(PromptOf(*engine, prompts[i], 20 + static_cast<int64_t>(i), i % 2 == 0 ? 0.0f : 0.8f, i)));
  std::map<Ticket, Answer> together = RunAll(*engine);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(together[tickets[i]].ids, alone[i].ids) << prompts[i];
    EXPECT_EQ(together[tickets[i]].text, alone[i].text);
    EXPECT_EQ(together[tickets[i]].end_reason, EndReason::kLength);
    EXPECT_EQ(alone[i].ids.size(), 20 + i);
  }
  EXPECT_TRUE(engine->idle());
}

TEST(EngineTest, TheSameSeedGivesTheSameTextAndAnotherSeedAnother) {
  const std::unique_ptr<Engine> engine = Engine::Open(TinyOptions());
  std::vector<std::string> texts;
  for (const uint64_t seed : {1, 1, 2}) {
    const Ticket ticket = engine->Submit(PromptOf(*engine, "Once upon a time", 40, 1.0f, seed));
    texts.push_back(RunAll(*engine).at(ticket).text);
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NE(texts[0], texts[2]);
}

TEST(EngineTest, CancelQueuedMidPrefillAndDecoding) {
  EngineOptions options = TinyOptions();
  options.max_seqs = 1;
  options.prefill_rows = 8;
  const std::unique_ptr<Engine> engine = Engine::Open(options);
  const Request request = PromptOf(*engine, "Once upon a time there was a little girl who lived in a house by the sea with her mother", 30);
  ASSERT_GT(request.prompt_ids.size(), 16u);
  const Ticket alone = engine->Submit(request);
  const std::vector<int32_t> expected = RunAll(*engine).at(alone).ids;

  std::vector<Event> events;
  const Ticket prefilling = engine->Submit(request), queued = engine->Submit(request), last = engine->Submit(request);
  engine->Step(events);
  engine->Cancel(prefilling);
  engine->Cancel(queued);
  engine->Step(events);
  std::map<Ticket, EndReason> ends;
  for (const Event& event : events) ends[event.ticket] = event.end_reason;
  EXPECT_EQ(ends[prefilling], EndReason::kCancelled);
  EXPECT_EQ(ends[queued], EndReason::kCancelled);
  EXPECT_EQ(RunAll(*engine).at(last).ids, expected);  // the slot of a cancelled sequence holds nothing of it

  const Ticket decoding = engine->Submit(request);
  for (int i = 0; i < 12; ++i) engine->Step(events);
  engine->Cancel(decoding);
  engine->Cancel(12345);
  events.clear();
  EXPECT_FALSE(engine->Step(events));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].end_reason, EndReason::kCancelled);
  EXPECT_TRUE(engine->idle());
}

TEST(EngineTest, StopStringsAndTheEndToken) {
  const std::unique_ptr<Engine> engine = Engine::Open(TinyOptions());
  const Ticket whole = engine->Submit(PromptOf(*engine, "Once upon a time", 40));
  const std::string text = RunAll(*engine).at(whole).text;
  ASSERT_GT(text.size(), 20u);
  Request request = PromptOf(*engine, "Once upon a time", 40);
  request.stop = {text.substr(10, 4)};
  const Ticket stopped = engine->Submit(request);
  const Answer answer = RunAll(*engine).at(stopped);
  EXPECT_EQ(answer.text, text.substr(0, text.find(text.substr(10, 4))));
  EXPECT_EQ(answer.end_reason, EndReason::kStop);
}

TEST(EngineTest, NewTokensAreCutToTheContext) {
  EngineOptions options = TinyOptions();
  options.max_context = 20;
  const std::unique_ptr<Engine> engine = Engine::Open(options);
  const Request request = PromptOf(*engine, "Once upon a time", 1000);
  const Ticket ticket = engine->Submit(request);
  const Answer answer = RunAll(*engine).at(ticket);
  EXPECT_EQ(answer.ids.size() + request.prompt_ids.size(), 20u);
  EXPECT_EQ(answer.end_reason, EndReason::kLength);
}

TEST(EngineTest, RefusesRequestsThatCannotRun) {
  const std::unique_ptr<Engine> engine = Engine::Open(TinyOptions());
  const auto message = [&](Request request) -> std::string {
    try {
      engine->Submit(std::move(request));
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  Request request;
  EXPECT_EQ(message(request), "the prompt has no token ids");
  request.prompt_ids = {0, 4096};
  EXPECT_EQ(message(request), "prompt id 4096 at position 1 is outside the vocabulary of 4096");
  request.prompt_ids = {-1};
  EXPECT_EQ(message(request), "prompt id -1 at position 0 is outside the vocabulary of 4096");
  request.prompt_ids.assign(256, 1);
  EXPECT_NE(message(request).find("the prompt has 256 tokens, the context holds 256"), std::string::npos);
  request.prompt_ids = {0};
  request.max_tokens = 0;
  EXPECT_EQ(message(request), "0 new tokens were asked for: at least 1");
  request.max_tokens = 1;
  request.sampling.temperature = -1;
  EXPECT_NE(message(request), "accepted");
  EXPECT_TRUE(engine->idle());
}

TEST(EngineTest, OptionsOfLaterVersionsAreRefusedByName) {
  EngineOptions options = TinyOptions();
  options.ranks = 2;
  EXPECT_THROW(Engine::Open(options), Error);
}

}  // namespace
}  // namespace tessera
