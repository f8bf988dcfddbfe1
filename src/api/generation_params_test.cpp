#include "api/generation_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lagoon::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr kernels::Sampling kDefaults{.temperature = 0.7F, .top_k = 20, .top_p = 0.95F};

struct Read {
  GenerationParams params;
  std::string problem;
  std::string param;
};

Read read(const std::string& text, bool chat = true) {
  const Json json = *parse_json(text);
  Fields fields(json);
  Read result;
  result.params = read_generation_params(fields, kDefaults, 100, chat);
  refuse_unsupported(fields, chat);
  if (fields.failed()) {
    result.problem = fields.error().message;
    result.param = fields.error().param;
  }
  return result;
}

TEST(GenerationParams, DefaultsWhereTheRequestIsSilent) {
  const auto [params, problem, param] = read("{}");
  EXPECT_EQ(problem, "");
  EXPECT_FLOAT_EQ(params.sampling.temperature, 0.7F);
  EXPECT_EQ(params.sampling.top_k, 20);
  EXPECT_FLOAT_EQ(params.sampling.top_p, 0.95F);
  EXPECT_FALSE(params.max_tokens.has_value());
  EXPECT_FALSE(params.stream);
  EXPECT_TRUE(params.skip_special_tokens);
  EXPECT_NE(params.sampling.seed, read("{}").params.sampling.seed);
}

TEST(GenerationParams, Sampling) {
  const auto sampling =
      read(R"({"temperature":0.5,"top_p":0.25,"top_k":7,"seed":-3})").params.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.25F);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(read(R"({"top_k":-1})").params.sampling.top_k, 0);
  EXPECT_EQ(read(R"({"top_k":0})").params.sampling.top_k, 0);
  EXPECT_EQ(read(R"({"temperature":0})").params.sampling.temperature, 0);
  EXPECT_EQ(read(R"({"temperature":1e-9})").params.sampling.temperature, 0);
  EXPECT_FLOAT_EQ(read(R"({"temperature":0.001})").params.sampling.temperature, 0.01F);
}

TEST(GenerationParams, LimitsAndStops) {
  EXPECT_EQ(read(R"({"max_tokens":5})").params.max_tokens, 5);
  EXPECT_EQ(read(R"({"max_tokens":5,"max_completion_tokens":6})").params.max_tokens, 6);
  EXPECT_EQ(read(R"({"max_tokens":5.0})").params.max_tokens, 5);
  EXPECT_THAT(read(R"({"stop":"a"})").params.stop, ElementsAre("a"));
  EXPECT_THAT(read(R"({"stop":["a","bc"]})").params.stop, ElementsAre("a", "bc"));
  EXPECT_THAT(read(R"({"stop_token_ids":[1,99]})").params.stop_tokens, ElementsAre(1, 99));
}

TEST(GenerationParams, Streaming) {
  const auto params =
      read(
          R"({"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})")
          .params;
  EXPECT_TRUE(params.stream);
  EXPECT_TRUE(params.include_usage);
  EXPECT_TRUE(params.continuous_usage);
  EXPECT_EQ(read(R"({"stream_options":{}})").param, "stream_options");
}

TEST(GenerationParams, WhatChangesLogits) {
  const auto params = read(R"({"min_p":0.1,"presence_penalty":-2,"frequency_penalty":1.5,
    "repetition_penalty":1.25,"logit_bias":{"7":-100,"3":2.5}})")
                          .params;
  EXPECT_FLOAT_EQ(params.sampling.min_p, 0.1F);
  EXPECT_FLOAT_EQ(params.penalties.presence, -2);
  EXPECT_FLOAT_EQ(params.penalties.frequency, 1.5F);
  EXPECT_FLOAT_EQ(params.penalties.repetition, 1.25F);
  EXPECT_THAT(params.logit_bias, ElementsAre(testing::Pair(3, 2.5F), testing::Pair(7, -100.0F)));
}

TEST(GenerationParams, Logprobs) {
  EXPECT_EQ(read("{}").params.logprobs, -1);
  EXPECT_EQ(read(R"({"logprobs":true})").params.logprobs, 0);
  EXPECT_EQ(read(R"({"logprobs":true,"top_logprobs":20})").params.logprobs, 20);
  EXPECT_EQ(read(R"({"logprobs":false,"top_logprobs":0})").params.logprobs, -1);
  EXPECT_EQ(read(R"({"logprobs":0})", false).params.logprobs, 0);
  EXPECT_EQ(read(R"({"logprobs":5})", false).params.logprobs, 5);
  EXPECT_EQ(read(R"({"prompt_logprobs":3})", false).params.prompt_logprobs, 3);
}

// The sentences are vLLM's; clients show them to people.
TEST(GenerationParams, RangesAreTold) {
  EXPECT_EQ(read(R"({"temperature":-1})").problem,
            "temperature must be non-negative, got -1. (parameter=temperature, value=-1)");
  EXPECT_EQ(read(R"({"n":0})").problem, "n must be at least 1, got 0. (parameter=n, value=0)");
  EXPECT_EQ(read(R"({"presence_penalty":2.5})").problem,
            "presence_penalty must be in [-2, 2], got 2.5. (parameter=presence_penalty, "
            "value=2.5)");
  EXPECT_EQ(read(R"({"top_logprobs":2})").problem,
            "when using `top_logprobs`, `logprobs` must be set to true.");
}

std::vector<engine::Request> requests_of(const std::string& json, bool chat = true) {
  std::vector<engine::Request> requests;
  const auto problem = add_requests(read(json, chat).params, {1, 2, 3}, 100, 16, "x", requests);
  EXPECT_FALSE(problem.has_value()) << problem->message;
  return requests;
}

TEST(Requests, EachChoiceHasASeedOfItsOwn) {
  const auto requests = requests_of(R"({"n":3,"seed":5,"max_tokens":7,"min_tokens":2})");
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].id, "x");
  EXPECT_EQ(requests[2].id, "x-2");
  EXPECT_EQ(requests[0].sampling.seed, 5U);
  EXPECT_NE(requests[1].sampling.seed, requests[2].sampling.seed);
  EXPECT_EQ(requests[1].sampling.seed, choice_seed(5, 1));
  EXPECT_EQ(requests[1].max_tokens, 7);
  EXPECT_EQ(requests[1].min_tokens, 2);
  EXPECT_THAT(requests[1].prompt, ElementsAre(1, 2, 3));
}

TEST(Requests, EchoNeedsNoTokensAndAsksForThePromptsProbabilities) {
  const auto requests = requests_of(R"({"echo":true,"max_tokens":0,"logprobs":2})", false);
  EXPECT_EQ(requests[0].max_tokens, 1);
  EXPECT_EQ(requests[0].prompt_logprobs, 2);
  EXPECT_EQ(requests_of(R"({"logprobs":2})", false)[0].prompt_logprobs, -1);
  EXPECT_EQ(requests_of("{}", false)[0].max_tokens, 16);
}

TEST(Requests, PromptsAreNotScoredForChoicesWithoutBound) {
  const auto problem_of = [](const std::string& json, size_t prompt_tokens) {
    std::vector<engine::Request> requests(1);
    requests[0].prompt.resize(prompt_tokens > 60'000 ? 0 : 20'000);
    return add_requests(read(json, false).params, std::vector<int32_t>(prompt_tokens, 1), 100'000,
                        1, "x", requests);
  };
  EXPECT_FALSE(problem_of(R"({"prompt_logprobs":1})", 70'000));
  EXPECT_FALSE(problem_of(R"({"n":3})", 70'000));
  const auto problem = problem_of(R"({"n":1,"prompt_logprobs":1})", 50'000);
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->status, 400);
  EXPECT_THAT(problem->message, HasSubstr("too many for one request"));
}

TEST(Requests, MinTokensAboveTheLimit) {
  std::vector<engine::Request> requests;
  const auto problem =
      add_requests(read(R"({"min_tokens":6,"max_tokens":5})").params, {1}, 100, 0, "x", requests);
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->message,
            "min_tokens must be less than or equal to max_tokens=5, got 6. (parameter=min_tokens, "
            "value=6)");
}

TEST(GenerationParams, BadValuesNameTheirField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"temperature":-1})", "temperature"},
      {R"({"temperature":"hot"})", "temperature"},
      {R"({"top_p":0})", "top_p"},
      {R"({"top_p":1.5})", "top_p"},
      {R"({"top_k":-2})", "top_k"},
      {R"({"top_k":1.5})", "top_k"},
      {R"({"seed":"x"})", "seed"},
      {R"({"seed":18446744073709551615})", "seed"},
      {R"({"max_tokens":0})", "max_tokens"},
      {R"({"max_completion_tokens":-1})", "max_completion_tokens"},
      {R"({"stop":1})", "stop"},
      {R"({"stop":[1]})", "stop.0"},
      {R"({"stop":""})", "stop"},
      {R"({"stop_token_ids":[100]})", "stop_token_ids.0"},
      {R"({"stop_token_ids":[-1]})", "stop_token_ids.0"},
      {R"({"stop_token_ids":["a"]})", "stop_token_ids.0"},
      {R"({"ignore_eos":1})", "ignore_eos"},
      {R"({"n":0})", "n"},
      {R"({"n":129})", "n"},
      {R"({"n":2,"best_of":3})", "best_of"},
      {R"({"min_p":-0.1})", "min_p"},
      {R"({"min_p":1.1})", "min_p"},
      {R"({"presence_penalty":-2.1})", "presence_penalty"},
      {R"({"frequency_penalty":3})", "frequency_penalty"},
      {R"({"repetition_penalty":0})", "repetition_penalty"},
      {R"({"repetition_penalty":1e30})", "repetition_penalty"},
      {R"({"min_tokens":-1})", "min_tokens"},
      {R"({"logit_bias":[]})", "logit_bias"},
      {R"({"logit_bias":{"x":1}})", "logit_bias.x"},
      {R"({"logit_bias":{"1.5":1}})", "logit_bias.1.5"},
      {R"({"logit_bias":{"100":1}})", "logit_bias"},
      {R"({"logit_bias":{"1":"a"}})", "logit_bias.1"},
      {R"({"logit_bias":{"1":101}})", "logit_bias.1"},
      {R"({"logprobs":1})", "logprobs"},
      {R"({"top_logprobs":2})", "top_logprobs"},
      {R"({"logprobs":true,"top_logprobs":21})", "top_logprobs"},
      {R"({"logprobs":true,"top_logprobs":-1})", "top_logprobs"},
      {R"({"prompt_logprobs":21})", "prompt_logprobs"},
      {R"({"prompt_logprobs":1,"stream":true})", "prompt_logprobs"},
      {R"({"include_stop_str_in_output":"x"})", "include_stop_str_in_output"},
      {R"({"stream":"yes"})", "stream"},
      {R"({"stream":true,"stream_options":{"include_usage":1}})", "stream_options.include_usage"},
  };
  for (const auto& [json, param] : cases) EXPECT_EQ(read(json).param, param) << json;
}

TEST(GenerationParams, WhatThisVersionCannotDoIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"functions":[{"name":"f"}]})", "functions"},
      {R"({"response_format":{"type":"json_object"}})", "response_format"},
      {R"({"best_of":2})", "best_of"},
      {R"({"guided_json":{}})", "guided_json"},
      {R"({"structured_outputs":{"regex":"a"}})", "structured_outputs"},
      {R"({"use_beam_search":true})", "use_beam_search"},
      {R"({"bad_words":["a"]})", "bad_words"},
      {R"({"echo":true})", "echo"},
      {R"({"chat_template":"x"})", "chat_template"},
  };
  for (const auto& [json, param] : cases) {
    const auto result = read(json);
    EXPECT_EQ(result.param, param) << json;
    EXPECT_THAT(result.problem, HasSubstr("not supported by this version of Lagoon")) << json;
  }
  EXPECT_EQ(read(R"({"suffix":"x"})", false).param, "suffix");
}

TEST(GenerationParams, NeutralValuesPass) {
  EXPECT_EQ(read(R"({"functions":[],"function_call":"auto","response_format":{"type":"text"},
    "logprobs":false,"top_logprobs":0,"prompt_logprobs":null,"n":1,"min_p":0,
    "logit_bias":{},"presence_penalty":0.0,"frequency_penalty":0,"repetition_penalty":1.0,
    "min_tokens":0,"use_beam_search":false,"bad_words":[],"echo":false,"user":"u","best_of":1,
    "metadata":{"a":1}})")
                .problem,
            "");
  EXPECT_EQ(read(R"({"logprobs":null,"suffix":null})", false).problem, "");
}

TEST(MaxTokens, TheRestOfTheContextOrWhatWasAsked) {
  EXPECT_EQ(std::get<int>(resolve_max_tokens({}, 90, 100)), 10);
  EXPECT_EQ(std::get<int>(resolve_max_tokens(10, 90, 100)), 10);
  EXPECT_EQ(std::get<int>(resolve_max_tokens({}, 99, 100)), 1);
}

TEST(MaxTokens, TooMuchIsToldInTheWordsClientsRead) {
  const auto error = std::get<ApiError>(resolve_max_tokens(11, 90, 100));
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.type, "BadRequestError");
  EXPECT_EQ(error.param, "input_tokens");
  EXPECT_EQ(error.message,
            "This model's maximum context length is 100 tokens. However, you requested 11 output "
            "tokens and your prompt contains at least 90 input tokens, for a total of at least 101 "
            "tokens. Please reduce the length of the input prompt or the number of requested "
            "output tokens. (parameter=input_tokens, value=90)");
  EXPECT_TRUE(std::holds_alternative<ApiError>(resolve_max_tokens({}, 100, 100)));
  EXPECT_THAT(std::get<ApiError>(resolve_max_tokens(101, 1, 100)).message,
              HasSubstr("max_tokens=101 cannot be greater than max_model_len=100"));
}

}  // namespace
}  // namespace lagoon::api
