#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "app/options.h"

namespace lagoon::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Words = std::vector<const char*>;

Result<Command> parse(Words arguments, Words environment = {}) {
  arguments.insert(arguments.begin(), {"lagoon", "serve"});
  environment.push_back(nullptr);
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data(),
                            environment.data());
}

ServeOptions serve(Words arguments, Words environment = {}) {
  const auto command = parse(std::move(arguments), std::move(environment));
  EXPECT_TRUE(command.ok()) << command.error().message;
  return command.ok() ? std::get<ServeOptions>(*command) : ServeOptions{};
}

std::string error(Words arguments, Words environment = {}) {
  const auto command = parse(std::move(arguments), std::move(environment));
  return command.ok() ? "" : command.error().message;
}

// A file of this process that is removed at the end of the test.
class File {
 public:
  explicit File(const std::string& text)
      : path_(fmt::format("{}/serve_options_{}", testing::TempDir(), ::getpid())) {
    std::ofstream(path_) << text;
  }
  ~File() { ::unlink(path_.c_str()); }
  const char* path() const { return path_.c_str(); }

 private:
  const std::string path_;
};

TEST(ServeOptions, TheLineOfTheRecipe) {
  const auto options =
      serve({"/m/Laguna-S-2.1-NVFP4", "--served-model-name", "laguna-s-nvfp4", "--max-model-len",
             "262144", "--gpu-memory-utilization", "0.85", "--kv-cache-memory-bytes", "12884901888",
             "--max-num-seqs", "4", "--max-num-batched-tokens", "8192", "--speculative-config",
             R"({"method":"dflash","model":"d","num_speculative_tokens":6})", "--host", "0.0.0.0",
             "--port", "8000"},
            {"VLLM_USE_DEEP_GEMM=0", "PATH=/bin"});
  EXPECT_EQ(options.model.model, "/m/Laguna-S-2.1-NVFP4");
  EXPECT_EQ(options.model.max_length, 262144);
  EXPECT_EQ(options.model.kv_cache_bytes, 12884901888);
  EXPECT_EQ(options.model.slots, 4);
  EXPECT_EQ(options.model.max_batched_tokens, 8192);
  EXPECT_EQ(options.host, "0.0.0.0");
  EXPECT_EQ(options.model.memory_utilization, 0.85);
  EXPECT_EQ(options.stall_timeout, 60);
  EXPECT_FALSE(options.model.require_draft);
  EXPECT_THAT(options.remarks, ElementsAre(HasSubstr("VLLM_USE_DEEP_GEMM is ignored")));
}

TEST(ServeOptions, WhatIsAcceptedAndChangesNothingSaysSo) {
  const auto options =
      serve({"m", "--enable-prefix-caching", "--enable-chunked-prefill", "--enforce-eager",
             "--moe-backend", "triton", "--trust-remote-code", "--tensor-parallel-size=1",
             "--enable-auto-tool-choice", "--tool-call-parser", "poolside_v1",
             "--reasoning-parser=poolside_v1", "--enable-request-id-headers"});
  EXPECT_THAT(options.remarks,
              ElementsAre(HasSubstr("--enable-prefix-caching"), HasSubstr("--moe-backend"),
                          HasSubstr("--trust-remote-code")));
  EXPECT_FALSE(options.model.graphs);
  EXPECT_TRUE(serve({"m"}).model.graphs);
  EXPECT_THAT(serve({"m", "--no-enable-prefix-caching"}).remarks, IsEmpty());
}

TEST(ServeOptions, WhatCannotBeHadIsRefused) {
  EXPECT_THAT(error({"m", "--tensor-parallel-size", "2"}), HasSubstr("one device"));
  EXPECT_THAT(error({"m", "--gpu-memory-utilization", "1.5"}), HasSubstr("1.5"));
  EXPECT_THAT(error({"m", "--gpu-memory-utilization", "nan"}), HasSubstr("nan"));
  EXPECT_THAT(error({"m", "--require-draft"}), HasSubstr("--speculative-config"));
  EXPECT_THAT(error({"m", "--no-enable-chunked-prefill"}), HasSubstr("chunks"));
  EXPECT_THAT(error({"m", "--no-enable-auto-tool-choice"}), HasSubstr("tool_choice"));
  EXPECT_THAT(error({"m", "--tool-call-parser", "hermes"}), HasSubstr("poolside_v1"));
  EXPECT_THAT(error({"m", "--reasoning-parser", "qwen3"}), HasSubstr("poolside_v1"));
  EXPECT_THAT(error({"m", "--ssl-certfile", "c"}), HasSubstr("--ssl-keyfile"));
  EXPECT_THAT(error({"m", "--ssl-certfile", "c", "--ssl-keyfile", "k", "--ssl-cert-reqs", "2"}),
              HasSubstr("--ssl-ca-certs"));
  EXPECT_THAT(error({"m", "--uds", "s", "--port", "1"}), HasSubstr("--uds"));
  EXPECT_THAT(error({"m", "--root-path", "api"}), HasSubstr("'/'"));
  EXPECT_THAT(error({"m", "--max-log-len", "5"}), HasSubstr("--enable-log-requests"));
  EXPECT_THAT(error({"m", "--max-num-seqs", "0"}), HasSubstr("--max-num-seqs"));
  EXPECT_THAT(error({"m", "--max-num-batched-tokens", "many"}), HasSubstr("'many'"));
  EXPECT_THAT(error({"m", "--kv-cache-memory-bytes", "-1"}), HasSubstr("'-1'"));
  EXPECT_THAT(error({"m", "--api-key-file", "/no/file"}), HasSubstr("/no/file cannot be read"));
  EXPECT_THAT(error({"m", "--enable-lora"}), HasSubstr("no option --enable-lora; the nearest is"));
  EXPECT_THAT(error({"a", "--model", "b"}), HasSubstr("'a' and --model 'b' are two"));
  EXPECT_THAT(error({"m", "--allowed-origins", "[1]"}), HasSubstr("--allowed-origins"));
}

TEST(ServeOptions, Network) {
  const auto options =
      serve({"--model", "m", "--api-key", "a", "b", "--api-key", "c", "--allowed-origins",
             R"(["https://x.example","https://y.example"])", "--allowed-methods", "GET",
             "--allow-credentials", "--root-path", "/lagoon/", "--shutdown-timeout", "5",
             "--log-format", "json", "--disable-log-stats"});
  EXPECT_EQ(options.model.model, "m");
  EXPECT_THAT(options.api_keys, ElementsAre("a", "b", "c"));
  EXPECT_THAT(options.allowed_origins, ElementsAre("https://x.example", "https://y.example"));
  EXPECT_THAT(options.allowed_methods, ElementsAre("GET"));
  EXPECT_THAT(options.allowed_headers, ElementsAre("*"));
  EXPECT_TRUE(options.allow_credentials);
  EXPECT_EQ(options.root_path, "/lagoon");
  EXPECT_EQ(options.shutdown_timeout, 5);
  EXPECT_TRUE(options.json_log);
  EXPECT_FALSE(options.log_stats);
  EXPECT_THAT(serve({"m", "--allowed-origins", "[]"}).allowed_origins, IsEmpty());
  EXPECT_THAT(serve({"m", "--allowed-origins=[\"a\"]"}).allowed_origins, ElementsAre("a"));
  EXPECT_THAT(serve({"m"}, {R"(LAGOON_ALLOWED_ORIGINS=["a","b"])"}).allowed_origins,
              ElementsAre("a", "b"));
}

TEST(ServeOptions, KeysFromAFile) {
  const File file("one\r\n\ntwo\n");
  EXPECT_THAT(serve({"m", "--api-key-file", file.path(), "--api-key", "zero"}).api_keys,
              ElementsAre("zero", "one", "two"));
  const File empty("\n");
  EXPECT_THAT(error({"m", "--api-key-file", empty.path()}), HasSubstr("has no keys"));
}

TEST(ServeOptions, JsonByKey) {
  EXPECT_EQ(serve({"m", "--speculative-config.method", "dflash", "--speculative-config.model=d",
                   "--speculative_config.num_speculative_tokens", "6"})
                .model.speculative_config,
            R"({"method":"dflash","model":"d","num_speculative_tokens":6})");
  // On top of the whole object, wherever that comes from; the last one counts.
  EXPECT_EQ(serve({"m", "--speculative-config.model", "x", "--speculative-config.model", "y"},
                  {R"(LAGOON_SPECULATIVE_CONFIG={"method":"dflash","model":"d"})"})
                .model.speculative_config,
            R"({"method":"dflash","model":"y"})");
  EXPECT_EQ(serve({"--default-chat-template-kwargs.enable_thinking", "true", "m",
                   "--default-chat-template-kwargs.a.b", "1.5"})
                .default_template_kwargs,
            R"({"enable_thinking":true,"a":{"b":1.5}})");
  EXPECT_THAT(error({"m", "--speculative-config.method"}), HasSubstr("needs a value"));
  EXPECT_THAT(error({"m", "--speculative-config", "[]", "--speculative-config.a", "1"}),
              HasSubstr("not a JSON object"));
  EXPECT_THAT(error({"m", "--speculative-config.a", "1", "--speculative-config.a.b", "1"}),
              HasSubstr("does not name a value"));
  EXPECT_THAT(error({"m", "--speculative-config..a", "1"}), HasSubstr("does not name a value"));
  EXPECT_THAT(error({"m", "--port.a", "1"}), HasSubstr("no option --port.a"));
}

TEST(ServeOptions, TheEnvironment) {
  const auto options =
      serve({"--port", "3"}, {"LAGOON_MODEL=m", "LAGOON_PORT=1", "LAGOON_MAX_MODEL_LEN=16K",
                              "LAGOON_SERVED_MODEL_NAME=a,b", "LAGOON_ENABLE_LOG_REQUESTS=1",
                              "LAGOON_API_KEY=k1,k2", "VLLM_API_KEY=theirs"});
  EXPECT_EQ(options.model.model, "m");
  EXPECT_EQ(options.port, 3);
  EXPECT_EQ(options.model.max_length, 16384);
  EXPECT_THAT(options.served_names, ElementsAre("a", "b"));
  EXPECT_TRUE(options.log_requests);
  EXPECT_THAT(options.api_keys, ElementsAre("k1", "k2"));
  EXPECT_THAT(options.remarks, IsEmpty());
  // A list on the command line takes the place of the environment's, and ends before the rest.
  EXPECT_THAT(
      serve({"--served-model-name", "c", "--", "m"}, {"LAGOON_SERVED_MODEL_NAME=a,b"}).served_names,
      ElementsAre("c"));
  EXPECT_EQ(serve({"x"}, {"LAGOON_MODEL=m"}).model.model, "x");
  EXPECT_THAT(serve({"m"}, {"VLLM_API_KEY=theirs"}).api_keys, ElementsAre("theirs"));
  EXPECT_THAT(serve({"m", "--api-key", "mine"}, {"VLLM_API_KEY=theirs"}).api_keys,
              ElementsAre("mine"));
  EXPECT_THAT(serve({"m"}, {"LAGOON_PROT=1", "LAGOON_CPU=avx2"}).remarks,
              ElementsAre(HasSubstr("LAGOON_PROT names no option")));
  EXPECT_FALSE(
      serve({"m", "--no-enable-log-requests"}, {"LAGOON_ENABLE_LOG_REQUESTS=true"}).log_requests);
  EXPECT_THAT(serve({"m", "--api-key", "[a,b]", "c", "--served-model-name=[x]"}).api_keys,
              ElementsAre("[a,b]", "c"));
  EXPECT_THAT(serve({"m", "--served-model-name=[x]"}).served_names, ElementsAre("[x]"));
  EXPECT_EQ(serve({"m", "--max-body-bytes", "2K"}).max_body_bytes, 2048);
  EXPECT_EQ(serve({"m", "--max-response-store-bytes", "1m"}).max_response_store_bytes, 1'000'000);
  EXPECT_EQ(serve({"m", "--max-response-store-bytes", "0"}).max_response_store_bytes, 0);
  EXPECT_THAT(error({"m", "--max-response-store-bytes", "-1"}),
              HasSubstr("--max-response-store-bytes"));
  EXPECT_FALSE(serve({"m"}).strict_model_name);
  EXPECT_TRUE(serve({"m", "--strict-model-name"}).strict_model_name);
  EXPECT_TRUE(serve({"m"}).thinking_signatures);
  EXPECT_FALSE(serve({"m", "--no-thinking-signatures"}).thinking_signatures);
  EXPECT_THAT(error({"m", "--max-body-bytes", "2q"}), HasSubstr("--max-body-bytes"));
  EXPECT_THAT(error({"m", "--max-model-len", "1"}), HasSubstr("the least is 2"));
  EXPECT_THAT(error({"m"}, {"LAGOON_ENABLE_LOG_REQUESTS="}), HasSubstr("is given an empty value"));
  EXPECT_THAT(error({"m"}, {"LAGOON_PORT=x"}), HasSubstr("--port"));
  EXPECT_THAT(error({"m"}, {"LAGOON_PORT="}), HasSubstr("--port"));
  EXPECT_THAT(error({"m"}, {"LAGOON_ENABLE_LOG_REQUESTS=perhaps"}),
              HasSubstr("--enable-log-requests"));
}

TEST(ServeOptions, AConfigFile) {
  const File file(R"(
model = "m"
port = 1
max_model_len = "16K"
served-model-name = ["a", "b"]
gpu-memory-utilization = 0.5
kv-cache-memory-bytes = 1000000
enable-log-requests = true
enable-prefix-caching = false
api-key = "one"

[speculative-config]
method = "dflash"
model = "d"
num_speculative_tokens = 6
)");
  const auto options = serve({"--config", file.path(), "--api-key", "k"}, {"LAGOON_PORT=2"});
  EXPECT_EQ(options.model.model, "m");
  EXPECT_EQ(options.port, 2);  // command line, then environment, then file
  EXPECT_EQ(options.model.max_length, 16384);
  EXPECT_THAT(options.served_names, ElementsAre("a", "b"));
  EXPECT_EQ(options.model.kv_cache_bytes, 1000000);
  EXPECT_TRUE(options.log_requests);
  EXPECT_THAT(options.api_keys, ElementsAre("k"));
  EXPECT_THAT(options.model.speculative_config, HasSubstr("\"dflash\""));
  EXPECT_EQ(serve({"x", "--port", "3"}, {fmt::format("LAGOON_CONFIG={}", file.path()).c_str()})
                .model.model,
            "x");
}

TEST(ServeOptions, WhatIsWrongWithAConfigFile) {
  const auto with = [](const char* text) {
    const File file(text);
    return error({"m", "--config", file.path()});
  };
  EXPECT_THAT(with("port = \n"), HasSubstr("line 1:"));
  EXPECT_THAT(with("prot = 1\n"), HasSubstr("no option --prot (--config); the nearest is --port"));
  EXPECT_THAT(with("port = [1, 2]\n"), HasSubstr("--port takes one value"));
  EXPECT_THAT(with("config = \"x\"\n"), HasSubstr("another one"));
  EXPECT_THAT(with("port = 1979-05-27\n"), HasSubstr("the value of port"));
  EXPECT_THAT(with("served-model-name = []\n"), HasSubstr("the value of served-model-name"));
  EXPECT_THAT(error({"m", "--config", "/no/file.toml"}), HasSubstr("/no/file.toml"));
  EXPECT_THAT(error({"m", "--config", "/no/file.toml"}), Not(HasSubstr("line")));
}

TEST(ServeOptions, HelpHasEverythingInGroups) {
  const auto help = parse({"--help"});
  ASSERT_TRUE(help.ok());
  const std::string text = std::get<Information>(*help).text;
  for (const char* word : {"Model:", "Computing and memory:", "Answers:", "Network:", "Limits:",
                           "Log:", "--api-key", "--config", "--shutdown-timeout"}) {
    EXPECT_THAT(text, HasSubstr(word));
  }
}

TEST(ParseCount, Units) {
  EXPECT_EQ(*parse_count("--x", "12G"), 12ll << 30);
  EXPECT_EQ(*parse_count("--x", "1.5g"), 1'500'000'000);
  EXPECT_THAT(parse_count("--x", "1T").error().message, HasSubstr("--x must be a number"));
}

}  // namespace
}  // namespace lagoon::app
