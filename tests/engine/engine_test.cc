#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/check.h"
#include "core/random.h"
#include "support/checkpoint_copy.h"
#include "support/golden_model.h"
#include "support/sanitized.h"

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
  std::string error;
  std::vector<LogProbabilities> log_probabilities;
  Usage usage;
};

// Adds events to the answers they belong to. Nothing comes after the end, and the end comes once.
void Collect(const std::vector<Event>& events, std::map<Ticket, Answer>& answers) {
  for (const Event& event : events) {
    Answer& answer = answers[event.ticket];
    ASSERT_EQ(answer.end_reason, EndReason::kNone) << "ticket " << event.ticket << " goes on after its end";
    if (event.token_id >= 0) answer.ids.push_back(event.token_id);
    if (event.log_probabilities) answer.log_probabilities.push_back(*event.log_probabilities);
    answer.text += event.text;
    answer.error += event.error;
    answer.end_reason = event.end_reason;
    answer.usage = event.usage;
  }
}

// Runs what was submitted to the end; slots and bytes are free then.
std::map<Ticket, Answer> RunAll(Engine& engine) {
  std::map<Ticket, Answer> answers;
  std::vector<Event> events;
  while (engine.Step(events)) {
  }
  Collect(events, answers);
  EXPECT_TRUE(engine.idle());
  EXPECT_EQ(engine.num_running(), 0);
  EXPECT_EQ(engine.admission().free_bytes(), engine.admission().budget_bytes());
  return answers;
}

Answer RunAlone(Engine& engine, Request request) {
  const Ticket ticket = engine.Submit(std::move(request));
  return RunAll(engine).at(ticket);
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

// The status and the message of a refusal.
std::string Refusal(Engine& engine, Request request) {
  try {
    engine.Submit(std::move(request));
  } catch (const RequestError& error) {
    return fmt::format("{} {}", error.status(), error.what());
  }
  return "accepted";
}

TEST(EngineTest, RefusesRequestsThatCannotRunAndKeepsNothingOfThem) {
  const std::unique_ptr<Engine> engine = Engine::Open(TinyOptions());
  Request request;
  EXPECT_EQ(Refusal(*engine, request), "400 the prompt has no token ids");
  request.prompt_ids = {0, 4096};
  EXPECT_EQ(Refusal(*engine, request), "400 prompt id 4096 at position 1 is outside the vocabulary of 4096");
  request.prompt_ids.assign(256, 1);
  EXPECT_NE(Refusal(*engine, request).find("the prompt has 256 tokens, the context holds 256"), std::string::npos);
  request.prompt_ids = {0};
  request.sampling.logit_bias = {{4096, 1}};
  EXPECT_EQ(Refusal(*engine, request), "400 logit_bias: token 4096 is outside the vocabulary of 4096");
  EXPECT_TRUE(engine->idle());
}

TEST(EngineTest, AFullQueueRefusesOneMoreUntilOneIsTaken) {
  EngineOptions options = TinyOptions();
  options.queue_limit = 2;
  const std::unique_ptr<Engine> engine = Engine::Open(options);
  const Request request = PromptOf(*engine, "Once upon a time", 4);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 5; ++i) tickets.push_back(engine->Submit(request));  // three for the slots, two that wait
  EXPECT_EQ(engine->num_waiting(), 5);
  EXPECT_EQ(Refusal(*engine, request), "429 5 requests are waiting, no more are queued (--queue-limit)");
  std::vector<Event> events;
  engine->Step(events);
  EXPECT_EQ(engine->num_running(), 3);
  EXPECT_EQ(Refusal(*engine, request), "429 2 requests are waiting, no more are queued (--queue-limit)");
  engine->Cancel(tickets[4]);
  engine->Step(events);
  tickets.push_back(engine->Submit(request));
  const std::map<Ticket, Answer> rest = RunAll(*engine);
  EXPECT_EQ(rest.at(tickets[5]).end_reason, EndReason::kLength);
  options.queue_limit = 0;
  const std::unique_ptr<Engine> no_queue = Engine::Open(options);
  for (int i = 0; i < 3; ++i) no_queue->Submit(request);
  EXPECT_EQ(Refusal(*no_queue, request).substr(0, 3), "429");
}

TEST(EngineTest, SequencesThatDoNotFitTogetherRunOneAfterTheOther) {
  EngineOptions options = TinyOptions();
  options.max_context = 4096;
  options.prefill_rows = 2048;  // rings of 1.2 MB
  options.kv_cache_mib = 1;
  const std::unique_ptr<Engine> engine = Engine::Open(options);
  ASSERT_EQ(engine->admission().budget_bytes(), 1 << 20);
  Request request = PromptOf(*engine, "Once upon a time", 0);
  // The longest sequence that fits, to the token.
  while (engine->admission().BytesFor(static_cast<int64_t>(request.prompt_ids.size()) + request.max_tokens + 1) <= 1 << 20)
    ++request.max_tokens;
  const int64_t most = request.max_tokens;
  ASSERT_GT(most, 20);
  ASSERT_LT(most, 4000);
  request.max_tokens = most + 1;
  EXPECT_NE(Refusal(*engine, request).find("of caches, the budget has 1.05 MB: ask for fewer, or raise --kv-cache-mib"), std::string::npos)
      << Refusal(*engine, request);
  request.max_tokens = most;
  request.stop_ids = {RunAlone(*engine, PromptOf(*engine, "Once upon a time", 6)).ids.back()};
  const Ticket first = engine->Submit(request), second = engine->Submit(request);
  std::vector<Event> events;
  engine->Step(events);
  EXPECT_EQ(engine->num_running(), 1);
  EXPECT_EQ(engine->num_waiting(), 1);
  std::map<Ticket, Answer> answers;
  Collect(events, answers);
  events.clear();
  while (engine->Step(events)) EXPECT_LE(engine->num_running(), 1);
  Collect(events, answers);
  EXPECT_EQ(answers[first].end_reason, EndReason::kStop);
  EXPECT_EQ(answers[first].ids, answers[second].ids);
  EXPECT_EQ(engine->admission().free_bytes(), 1 << 20);
}

TEST(EngineTest, ADeadlineEndsARequestQueuedInItsPromptOrDecoding) {
  double now = 100;
  EngineOptions options = TinyOptions();
  options.max_seqs = 2;
  options.prefill_rows = 8;
  const std::unique_ptr<Engine> engine = Engine::Open(options, [&] { return now; });
  Request decoding = PromptOf(*engine, "a", 50), prefilling = PromptOf(*engine, "a", 50), queued = decoding;
  prefilling.prompt_ids.assign(100, 7);
  decoding.deadline_s = 10;
  prefilling.deadline_s = 5;
  queued.deadline_s = 2.5;
  const Ticket a = engine->Submit(decoding), b = engine->Submit(prefilling), c = engine->Submit(queued), d = engine->Submit(queued);
  engine->Cancel(d);
  engine->Cancel(d);
  std::map<Ticket, Answer> answers;
  for (; now < 112; now += 1) {
    std::vector<Event> events;
    engine->Step(events);
    Collect(events, answers);
    EXPECT_EQ(answers[c].end_reason, now < 102.5 ? EndReason::kNone : EndReason::kDeadline);
    EXPECT_EQ(answers[b].end_reason, now < 105 ? EndReason::kNone : EndReason::kDeadline);
    EXPECT_EQ(answers[a].end_reason, now < 110 ? EndReason::kNone : EndReason::kDeadline);
  }
  EXPECT_EQ(answers[d].end_reason, EndReason::kCancelled);
  EXPECT_EQ(answers[a].ids.size(), 10u);
  EXPECT_TRUE(answers[b].ids.empty() && answers[c].ids.empty());
  EXPECT_EQ(answers[c].usage.queue_s, 3);
  EXPECT_EQ(answers[b].usage.generated_tokens, 0);
  EXPECT_TRUE(engine->idle());
  EXPECT_EQ(engine->admission().free_bytes(), engine->admission().budget_bytes());
  EXPECT_STREQ(EndReasonName(EndReason::kDeadline), "deadline");
}

TEST(EngineTest, UsageSaysHowManyTokensAndHowLong) {
  double now = 0;
  EngineOptions options = TinyOptions();
  options.max_seqs = 1;
  options.prefill_rows = 8;
  const std::unique_ptr<Engine> engine = Engine::Open(options, [&] { return now; });
  Request request = PromptOf(*engine, "a", 5);
  request.prompt_ids.assign(20, 9);
  const Ticket first = engine->Submit(request);
  now = 1;
  const Ticket second = engine->Submit(request);
  std::map<Ticket, Answer> answers;
  for (bool more = true; more; now += 1) {  // three steps of prompt, the last of them with a token, then four more tokens
    std::vector<Event> events;
    more = engine->Step(events);
    Collect(events, answers);
  }
  const Usage& one = answers[first].usage;
  EXPECT_EQ(one.prompt_tokens, 20);
  EXPECT_EQ(one.prefix_hit_tokens, 0);
  EXPECT_EQ(one.generated_tokens, 5);
  EXPECT_EQ(one.queue_s, 1);
  EXPECT_EQ(one.first_token_s, 3);
  EXPECT_EQ(one.decode_s, 4);
  const Usage& two = answers[second].usage;
  EXPECT_EQ(two.queue_s, 7);  // submitted at 1, the slot was free at 8
  EXPECT_EQ(two.first_token_s, 9);
  EXPECT_EQ(two.decode_s, 4);
}

TEST(EngineTest, StopIdsEndTheAnswerAlsoWhereTheEndTokenIsIgnored) {
  const std::unique_ptr<Engine> engine = Engine::Open(TinyOptions());
  Request request = PromptOf(*engine, "Once upon a time", 40);
  const Answer whole = RunAlone(*engine, request);
  request.stop_ids = {whole.ids[7], 4000};
  const Answer stopped = RunAlone(*engine, request);
  const auto first = std::find(whole.ids.begin(), whole.ids.end(), whole.ids[7]);
  EXPECT_EQ(stopped.ids, std::vector<int32_t>(whole.ids.begin(), first + 1));
  EXPECT_EQ(stopped.end_reason, EndReason::kStop);
  EXPECT_EQ(stopped.usage.generated_tokens, static_cast<int64_t>(stopped.ids.size()));
  EXPECT_EQ(whole.text.compare(0, stopped.text.size(), stopped.text), 0) << stopped.text;
}

TEST(EngineTest, AnAnswerThatNamesNoLengthEndsWithTheContext) {
  EngineOptions options = TinyOptions();
  options.max_context = 40;
  const std::unique_ptr<Engine> engine = Engine::Open(options);
  const Request request = PromptOf(*engine, "Once upon a time", 0);
  const Answer answer = RunAlone(*engine, request);
  EXPECT_EQ(answer.ids.size() + request.prompt_ids.size(), 40u);
}

// Log probabilities are the model's own: they agree with the logits of a run of the same tokens, whatever the request does to the draw.
TEST(EngineTest, LogProbabilitiesAreThoseOfTheBareLogits) {
  const std::unique_ptr<Engine> engine = Engine::Open(TinyOptions());
  Request request = PromptOf(*engine, "Once upon a time", 12, 0.7F, 3);
  EXPECT_TRUE(RunAlone(*engine, request).log_probabilities.empty());
  request.sampling.top_logprobs = 5;
  request.sampling.repetition_penalty = 1.5F;
  request.sampling.logit_bias = {{33, -100}};
  const Answer answer = RunAlone(*engine, request);
  ASSERT_EQ(answer.log_probabilities.size(), answer.ids.size());
  std::vector<int32_t> ids = request.prompt_ids;
  ids.insert(ids.end(), answer.ids.begin(), answer.ids.end());
  const std::vector<float> logits = testing::LogitsInChunks(engine->runner(), 0, ids, [](int64_t) { return 16; });
  engine->runner().cache().Release(0);
  const auto vocab_size = static_cast<size_t>(engine->config().vocab_size);
  for (size_t i = 0; i < answer.ids.size(); ++i) {
    const std::span<const float> row(logits.data() + (request.prompt_ids.size() + i - 1) * vocab_size, vocab_size);
    const LogProbabilities& got = answer.log_probabilities[i];
    EXPECT_EQ(got.drawn, LogProbability(row, answer.ids[i]));
    ASSERT_EQ(got.num_top, 5);
    for (int k = 0; k < 5; ++k) EXPECT_EQ(got.top[k].log_probability, LogProbability(row, got.top[k].token_id));
    EXPECT_EQ(got.top[0].token_id, std::max_element(row.begin(), row.end()) - row.begin());
  }
}

// A NaN in the embedding of one token poisons the requests that hold it and nothing else.
TEST(EngineTest, PoisonedLogitsFailTheRequestsThatHaveThem) {
  constexpr int32_t kPoisoned = 4000;
  const testing::CheckpointCopy copy("models/tiny");
  copy.SetByte(testing::CheckpointCopy::kFirstShard, "embed.weight", size_t{kPoisoned} * 256 * 2, 0xc0);
  copy.SetByte(testing::CheckpointCopy::kFirstShard, "embed.weight", size_t{kPoisoned} * 256 * 2 + 1, 0x7f);
  EngineOptions options = TinyOptions();
  options.model_dir = copy.path();
  const std::unique_ptr<Engine> engine = Engine::Open(options);
  Request healthy = PromptOf(*engine, "Once upon a time there was a king", 30, 0.8F, 5);
  const std::vector<int32_t> expected = RunAlone(*engine, healthy).ids;
  Request poisoned = healthy;
  poisoned.prompt_ids[3] = kPoisoned;
  poisoned.sampling.top_logprobs = 2;
  std::vector<Ticket> sound, sick;
  for (int i = 0; i < 4; ++i) {  // before, beside and after the poisoned ones, and in their slots
    sound.push_back(engine->Submit(healthy));
    sick.push_back(engine->Submit(poisoned));
  }
  const std::map<Ticket, Answer> answers = RunAll(*engine);
  for (const Ticket ticket : sound) EXPECT_EQ(answers.at(ticket).ids, expected);
  for (const Ticket ticket : sick) {
    EXPECT_EQ(answers.at(ticket).end_reason, EndReason::kError);
    EXPECT_EQ(answers.at(ticket).error, "the logits hold NaN or no finite value");
    EXPECT_TRUE(answers.at(ticket).ids.empty());
  }
}

// A random request: prompt and answer of any length, and every sampling option alone and together.
Request RandomRequest(uint64_t seed, int64_t vocab_size) {
  uint64_t counter = 0;
  const auto draw = [&](int64_t below) { return static_cast<int64_t>(UniformDouble(seed, 77, counter++) * static_cast<double>(below)); };
  Request request;
  // One in three begins with a part of one of two texts that others begin with too, long enough for snapshots inside it.
  if (draw(3) == 0) {
    const auto text = static_cast<uint64_t>(draw(2));
    for (uint64_t i = 0, count = 129 + 20 * static_cast<uint64_t>(draw(3)); i < count; ++i)
      request.prompt_ids.push_back(static_cast<int32_t>(UniformDouble(text, 79, i) * static_cast<double>(vocab_size)));
  }
  const int64_t num_prompt = 1 + (request.prompt_ids.empty() && draw(4) == 0 ? draw(130) : draw(40));
  for (int64_t i = 0; i < num_prompt; ++i) request.prompt_ids.push_back(static_cast<int32_t>(draw(vocab_size)));
  request.max_tokens = 1 + draw(30);
  request.ignore_eos = draw(2) == 0;
  SamplingOptions& sampling = request.sampling;
  sampling.seed = seed;
  sampling.temperature = draw(4) == 0 ? 0.0F : 0.3F + 0.1F * static_cast<float>(draw(12));
  if (draw(3) == 0) sampling.top_k = static_cast<int>(1 + draw(50));
  if (draw(3) == 0) sampling.top_p = 0.8F;
  if (draw(3) == 0) sampling.min_p = 0.05F;
  if (draw(3) == 0) sampling.repetition_penalty = 1.2F;
  if (draw(3) == 0) sampling.presence_penalty = 0.5F;
  if (draw(3) == 0) sampling.frequency_penalty = 0.3F;
  if (draw(3) == 0) sampling.logit_bias = {{static_cast<int32_t>(draw(vocab_size)), -100}, {0, 2}};
  if (draw(3) == 0) sampling.top_logprobs = static_cast<int>(draw(4));
  if (draw(4) == 0) request.stop_ids = {static_cast<int32_t>(draw(vocab_size))};
  return request;
}

class LongPromptTest : public ::testing::TestWithParam<const char*> {};

// The chunk size that is shipped, against texts long enough for the periodic snapshots: chunks are cut at them, hold two boundaries, end
// far behind one, and an answer decodes across one. Tokens and log probabilities are those of an engine that keeps no snapshots, cut
// otherwise.
TEST_P(LongPromptTest, SnapshotsEveryPeriodHaveTheBitsOfAColdRun) {
  if (testing::kSanitized) GTEST_SKIP() << "tens of thousands of tokens take minutes under a sanitizer";
  EngineOptions options = TinyOptions();
  options.model_dir = testing::GoldenDir(GetParam());
  options.max_context = 9000;
  options.prefill_rows = 512;
  EngineOptions cold_options = options;
  cold_options.prefill_rows = 100;
  cold_options.prefix_cache_mib = 0;
  const std::unique_ptr<Engine> engine = Engine::Open(options), cold = Engine::Open(cold_options);
  const int64_t vocab_size = engine->config().vocab_size;
  const auto text = [&](uint64_t stream, int64_t count) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i)
      ids.push_back(static_cast<int32_t>(UniformDouble(5, stream, static_cast<uint64_t>(i)) * static_cast<double>(vocab_size)));
    return ids;
  };
  const auto ask = [&](std::vector<int32_t> ids, int64_t max_tokens) {
    Request request;
    request.prompt_ids = std::move(ids);
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    request.sampling.top_logprobs = 2;
    const Answer answer = RunAlone(*engine, request), expected = RunAlone(*cold, request);
    EXPECT_EQ(answer.ids, expected.ids);
    EXPECT_EQ(answer.log_probabilities.size(), expected.log_probabilities.size());
    for (size_t i = 0; i < std::min(answer.log_probabilities.size(), expected.log_probabilities.size()); ++i)
      EXPECT_EQ(answer.log_probabilities[i].drawn, expected.log_probabilities[i].drawn) << "token " << i;
    EXPECT_EQ(expected.usage.prefix_hit_tokens, 0);
    return answer;
  };
  const auto begun_with = [&](int64_t count, uint64_t stream, int64_t more) {
    std::vector<int32_t> ids = text(1, count);
    const std::vector<int32_t> rest = text(stream, more);
    ids.insert(ids.end(), rest.begin(), rest.end());
    return ids;
  };
  ask(text(1, 8317), 4);
  EXPECT_EQ(ask(begun_with(8250, 2, 60), 4).usage.prefix_hit_tokens, 8192);
  EXPECT_EQ(ask(begun_with(4200, 3, 700), 4).usage.prefix_hit_tokens, 4096);
  EXPECT_EQ(ask(begun_with(8317, 4, 1), 4).usage.prefix_hit_tokens, 8317) << "the end of a prompt is a boundary wherever it is";
  // An answer that decodes across the period, and a prompt that goes on from inside it.
  std::vector<int32_t> across = text(6, 4090);
  const Answer answer = ask(across, 20);
  across.insert(across.end(), answer.ids.begin(), answer.ids.begin() + 9);
  const std::vector<int32_t> rest = text(7, 30);
  across.insert(across.end(), rest.begin(), rest.end());
  EXPECT_EQ(ask(across, 4).usage.prefix_hit_tokens, 4096);
}

INSTANTIATE_TEST_SUITE_P(Models, LongPromptTest, ::testing::Values("v4_tiny", "v41_tiny"));

class CrowdTest : public ::testing::TestWithParam<const char*> {};

// Many sequences with random lengths, arrivals, options, cancels and shared beginnings, on few slots and small budgets of bytes: each one's
// tokens, text and log probabilities are those of its solo run on an engine of another shape without a prefix cache. A cancelled one's are
// a beginning of them.
TEST_P(CrowdTest, EverySequenceAsIfAlone) {
  const std::string name = GetParam();
  const uint64_t num_sequences = testing::kSanitized ? 12 : 64;
  EngineOptions options = TinyOptions();
  if (name != "tiny") options.model_dir = testing::GoldenDir(name);
  options.max_seqs = 8;
  options.prefill_rows = 48;
  EngineOptions solo_options = options;
  solo_options.max_seqs = 1;
  solo_options.threads = 1;
  solo_options.prefill_rows = 17;
  solo_options.prefix_cache_mib = 0;
  std::vector<Answer> alone;
  {
    const std::unique_ptr<Engine> solo = Engine::Open(solo_options);
    for (uint64_t i = 0; i < num_sequences; ++i) alone.push_back(RunAlone(*solo, RandomRequest(i, solo->config().vocab_size)));
  }
  options.kv_cache_mib = 2;  // about half of what the slots could fill
  options.prefix_cache_mib = 1;
  const std::unique_ptr<Engine> engine = Engine::Open(options);
  std::vector<Ticket> tickets;
  std::map<Ticket, Answer> answers;
  std::map<int64_t, Ticket> cancels;  // by step
  int64_t step = 0, num_cancelled = 0, num_byte_waits = 0;
  uint64_t counter = 0;
  const auto draw = [&](int64_t below) { return static_cast<int64_t>(UniformDouble(1, 78, counter++) * static_cast<double>(below)); };
  for (bool more = true; more || tickets.size() < num_sequences; ++step) {
    for (int64_t arriving = draw(3); arriving-- > 0 && tickets.size() < num_sequences;) {
      tickets.push_back(engine->Submit(RandomRequest(tickets.size(), engine->config().vocab_size)));
      if (draw(5) == 0) cancels[step + draw(25)] = tickets.back();
    }
    if (cancels.count(step) > 0) engine->Cancel(cancels[step]);
    std::vector<Event> events;
    more = engine->Step(events);
    ASSERT_NO_FATAL_FAILURE(Collect(events, answers));
    EXPECT_LE(engine->prefix_cache().stats().used_bytes, options.prefix_cache_mib << 20);
    num_byte_waits += engine->num_waiting() > 0 && engine->num_running() < options.max_seqs;
  }
  for (size_t i = 0; i < num_sequences; ++i) {
    const Answer& got = answers[tickets[i]];
    const Answer& expected = alone[i];
    if (got.end_reason == EndReason::kCancelled) {
      ++num_cancelled;
      ASSERT_LE(got.ids.size(), expected.ids.size());
      EXPECT_TRUE(std::equal(got.ids.begin(), got.ids.end(), expected.ids.begin())) << name << " sequence " << i;
      continue;
    }
    EXPECT_EQ(got.ids, expected.ids) << name << " sequence " << i;
    EXPECT_EQ(got.text, expected.text);
    EXPECT_EQ(got.end_reason, expected.end_reason);
    ASSERT_EQ(got.log_probabilities.size(), expected.log_probabilities.size());
    for (size_t k = 0; k < got.log_probabilities.size(); ++k)
      EXPECT_EQ(got.log_probabilities[k].drawn, expected.log_probabilities[k].drawn);
  }
  if (!testing::kSanitized) {
    EXPECT_GT(num_cancelled, 3);
    EXPECT_LT(num_cancelled, 32);
    EXPECT_GT(num_byte_waits, 20) << "the budget never made anyone wait";
    EXPECT_GT(engine->prefix_cache().stats().num_restores, 3) << "nobody began behind another's text";
    EXPECT_GT(engine->prefix_cache().stats().num_evicted, 0);
  }
  EXPECT_TRUE(engine->idle());
  EXPECT_EQ(engine->admission().free_bytes(), engine->admission().budget_bytes());
}

INSTANTIATE_TEST_SUITE_P(Models, CrowdTest, ::testing::Values("tiny", "v4_tiny", "v41_tiny"), [](const auto& info) { return info.param; });

TEST(EngineTest, OptionsOfLaterVersionsAreRefusedByName) {
  EngineOptions options = TinyOptions();
  options.ranks = 2;
  EXPECT_THROW(Engine::Open(options), Error);
}

}  // namespace
}  // namespace tessera
