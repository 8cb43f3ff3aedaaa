#include "engine/request_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/check.h"

namespace tessera {
namespace {

constexpr RequestLimits kLimits = {100, 5000, 6000, true};

Request ValidRequest() {
  Request request;
  request.prompt_ids = {0, 99, 5};
  return request;
}

// The message of the refusal, which must be the request's own error.
std::string Refusal(const Request& request, const RequestLimits& limits = kLimits) {
  try {
    CheckRequest(request, limits);
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.what();
  }
  return "accepted";
}

TEST(RequestCheckTest, NewTokensAreWhatWasAskedForOrADefaultWithinTheContext) {
  Request request = ValidRequest();
  EXPECT_EQ(CheckRequest(request, kLimits), 3 + kDefaultMaxTokens);
  request.max_tokens = 7;
  EXPECT_EQ(CheckRequest(request, kLimits), 10);
  request.max_tokens = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(CheckRequest(request, kLimits), 5000);
  request.max_tokens = 0;
  request.prompt_ids.assign(4999, 1);
  EXPECT_EQ(CheckRequest(request, kLimits), 5000);
}

TEST(RequestCheckTest, EveryEdgeIsRefusedInOneLine) {
  const auto refusal = [](auto&& change) {
    Request request = ValidRequest();
    change(request);
    return Refusal(request);
  };
  EXPECT_EQ(refusal([](Request&) {}), "accepted");
  EXPECT_EQ(refusal([](Request& r) { r.prompt_ids.clear(); }), "the prompt has no token ids");
  EXPECT_EQ(refusal([](Request& r) { r.prompt_ids[1] = 100; }), "prompt id 100 at position 1 is outside the vocabulary of 100");
  EXPECT_EQ(refusal([](Request& r) { r.prompt_ids[0] = -1; }), "prompt id -1 at position 0 is outside the vocabulary of 100");
  EXPECT_EQ(refusal([](Request& r) { r.max_tokens = -1; }), "max_tokens -1 is negative");
  EXPECT_EQ(
      refusal([](Request& r) { r.prompt_ids.assign(5000, 1); }),
      "the prompt has 5000 tokens, the context holds 5000 with at least one new token (--max-context; the model has positions for 6000)");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.top_p = 2; }), "top_p 2 is not between 0 and 1");
  EXPECT_EQ(refusal([](Request& r) { r.stop = {"a", ""}; }), "stop: an empty text ends every answer");
  EXPECT_EQ(refusal([](Request& r) { r.stop.assign(65, "a"); }), "stop: 65 texts, at most 64 are compared with an answer");
  EXPECT_EQ(refusal([](Request& r) { r.stop = {std::string(4097, 'a')}; }), "stop: a text of 4097 bytes, at most 4096");
  EXPECT_EQ(refusal([](Request& r) { r.stop_ids = {3, 100}; }), "stop_ids: 100 is outside the vocabulary of 100");
  EXPECT_EQ(refusal([](Request& r) { r.stop_ids = {-5}; }), "stop_ids: -5 is outside the vocabulary of 100");
  EXPECT_EQ(refusal([](Request& r) { r.deadline_s = -1; }), "a deadline of -1 seconds is no time from now");
  EXPECT_EQ(refusal([](Request& r) { r.deadline_s = NAN; }), "a deadline of nan seconds is no time from now");
  Request request = ValidRequest();
  request.stop = {"a"};
  EXPECT_EQ(Refusal(request, {100, 5000, 6000, false}), "stop: the model has no tokenizer, so answers have no text");
}

}  // namespace
}  // namespace tessera
