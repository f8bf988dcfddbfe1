#include "app/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lagoon::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Command> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "lagoon");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

ServeOptions serve(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "serve");
  const auto command = parse(std::move(arguments));
  EXPECT_TRUE(command.ok()) << command.error().message;
  return command.ok() ? std::get<ServeOptions>(*command) : ServeOptions{};
}

std::string error(std::vector<const char*> arguments) {
  const auto command = parse(std::move(arguments));
  return command.ok() ? "" : command.error().message;
}

TEST(CommandLine, ServeAsInTheRecipe) {
  const auto options = serve({"/models/target", "--served-model-name", "a", "b", "--max-model-len",
                              "262144", "--speculative-config", R"({"method":"dflash"})", "--host",
                              "0.0.0.0", "--port", "9000", "--default-chat-template-kwargs", "{}"});
  EXPECT_EQ(options.model.model, "/models/target");
  EXPECT_THAT(options.served_names, ElementsAre("a", "b"));
  EXPECT_EQ(options.model.max_length, 262144);
  EXPECT_EQ(options.model.speculative_config, R"({"method":"dflash"})");
  EXPECT_EQ(options.host, "0.0.0.0");
  EXPECT_EQ(options.port, 9000);
  EXPECT_EQ(options.default_template_kwargs, "{}");
}

TEST(CommandLine, Defaults) {
  const auto options = serve({"m"});
  EXPECT_EQ(options.host, "127.0.0.1");
  EXPECT_EQ(options.port, 8000);
  EXPECT_EQ(options.model.max_length, 0);
  EXPECT_EQ(options.model.speculative_config, "");
  EXPECT_EQ(options.model.backend, "auto");
  EXPECT_EQ(options.model.kv_cache_dtype, "auto");
  EXPECT_TRUE(options.served_names.empty());
}

TEST(CommandLine, BackendsAndTypesOfCaches) {
  const auto options = serve({"m", "--backend", "ref", "--kv-cache-dtype", "fp8_e4m3"});
  EXPECT_EQ(options.model.backend, "ref");
  EXPECT_EQ(options.model.kv_cache_dtype, "fp8_e4m3");
  EXPECT_EQ(serve({"m", "--backend", "cuda"}).model.backend, "cuda");
  EXPECT_THAT(error({"serve", "m", "--backend", "gpu"}), HasSubstr("--backend"));
  EXPECT_THAT(error({"serve", "m", "--kv-cache-dtype", "fp4"}), HasSubstr("--kv-cache-dtype"));
}

TEST(CommandLine, TheLastOfARepeatedOptionCounts) {
  const auto options = serve({"m", "--port", "1", "--port=2", "--served-model-name", "a", "b",
                              "--served-model-name", "c", "--max-model-len=1k"});
  EXPECT_EQ(options.port, 2);
  EXPECT_THAT(options.served_names, ElementsAre("c"));
  EXPECT_EQ(options.model.max_length, 1000);
}

TEST(CommandLine, UnderscoresInNamesCountAsHyphens) {
  EXPECT_EQ(serve({"m", "--max_model_len", "-1", "--served_model_name=a_b"}).served_names[0],
            "a_b");
}

TEST(CommandLine, Generate) {
  const auto command =
      parse({"generate", "m", "--prompt", "-x", "--raw", "--max-tokens", "5", "--temperature", "0",
             "--top-p", "0.5", "--top-k", "3", "--seed", "-7", "--thinking"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& options = std::get<GenerateOptions>(*command);
  EXPECT_EQ(options.prompt, "-x");
  EXPECT_TRUE(options.raw);
  EXPECT_EQ(options.max_tokens, 5);
  EXPECT_EQ(options.temperature, 0);
  EXPECT_EQ(options.top_p, 0.5);
  EXPECT_EQ(options.top_k, 3);
  EXPECT_EQ(options.seed, -7);
  EXPECT_TRUE(options.thinking);
}

TEST(CommandLine, WhatIsWrongIsNamed) {
  EXPECT_THAT(error({"serve", "m", "--prot", "1"}),
              HasSubstr("no option --prot; the nearest is --port"));
  EXPECT_THAT(error({"serve", "m", "--serve-model-name=x"}),
              HasSubstr("the nearest is --served-model-name"));
  EXPECT_THAT(error({"serve"}), HasSubstr("needs a MODEL"));
  EXPECT_THAT(error({"serve", "m", "n"}), HasSubstr("'n' is left over"));
  EXPECT_THAT(error({"serve", "m", "--port", "70000"}), HasSubstr("--port"));
  EXPECT_THAT(error({"serve", "m", "--port", "-1"}), HasSubstr("--port"));
  EXPECT_THAT(error({"serve", "m", "--port"}), HasSubstr("--port"));
  EXPECT_THAT(error({"serve", "m", "--max-model-len", "many"}), HasSubstr("'many'"));
  EXPECT_THAT(error({"serve", "m", "--threads", "0"}), HasSubstr("--threads"));
  EXPECT_THAT(error({"generate", "m"}), HasSubstr("--prompt"));
  EXPECT_THAT(error({"generate", "m", "--prompt", "x", "--top-p", "0"}), HasSubstr("--top-p"));
  EXPECT_THAT(error({"servr", "m"}), HasSubstr("no command servr; the nearest is serve"));
  EXPECT_THAT(error({"--versoin"}), HasSubstr("no option --versoin; the nearest is --version"));
  EXPECT_THAT(error({}), HasSubstr("needs a command"));
}

const char* const kDraft = R"({"method":"dflash","model":"d","num_speculative_tokens":6})";

TEST(CommandLine, Bench) {
  const auto command = parse({"bench",
                              "m",
                              "--input-len",
                              "128",
                              "--output-len=64",
                              "--streams",
                              "1,4,8",
                              "--k",
                              "0,3,6",
                              "--repeats",
                              "5",
                              "--json",
                              "f.json",
                              "--speculative-config",
                              kDraft,
                              "--load-format",
                              "dummy",
                              "--dummy-routing-overlap",
                              "0.35",
                              "--synthetic-acceptance",
                              ".88,.69,.64,.59,.51,.39",
                              "--chat"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& options = std::get<BenchOptions>(*command);
  EXPECT_EQ(options.model.model, "m");
  EXPECT_EQ(options.input_length, 128);
  EXPECT_EQ(options.output_length, 64);
  EXPECT_THAT(options.streams, ElementsAre(1, 4, 8));
  EXPECT_THAT(options.proposals, ElementsAre(0, 3, 6));
  EXPECT_EQ(options.repeats, 5);
  EXPECT_EQ(options.json, "f.json");
  EXPECT_TRUE(options.chat);
  EXPECT_TRUE(options.model.dummy);
  EXPECT_EQ(options.model.dummy_routing_overlap, 0.35);
  EXPECT_THAT(options.model.synthetic_acceptance, ElementsAre(.88, .69, .64, .59, .51, .39));
}

// A list ends with its argument, and of two the last counts.
TEST(CommandLine, ListsLeaveTheModelAlone) {
  const auto command = parse({"bench", "--streams", "1,4", "--k", "0", "m", "--streams", "2"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& options = std::get<BenchOptions>(*command);
  EXPECT_EQ(options.model.model, "m");
  EXPECT_THAT(options.streams, ElementsAre(2));
  EXPECT_THAT(options.proposals, ElementsAre(0));
}

TEST(CommandLine, BenchOfAServer) {
  const auto command =
      parse({"bench", "--url", "http://h:1", "--served-model", "x", "--timeout", "5"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& options = std::get<BenchOptions>(*command);
  EXPECT_EQ(options.url, "http://h:1");
  EXPECT_EQ(options.served_model, "x");
  EXPECT_EQ(options.timeout, 5);
  EXPECT_THAT(options.streams, ElementsAre(1));
}

TEST(CommandLine, Synth) {
  const auto command = parse({"synth", "--config", "c", "--out", "o", "--layers", "4", "--seed",
                              "18446744073709551615", "--tokenizer", "t"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& options = std::get<SynthOptions>(*command);
  EXPECT_EQ(options.config, "c");
  EXPECT_EQ(options.out, "o");
  EXPECT_EQ(options.layers, 4);
  EXPECT_EQ(options.seed, UINT64_MAX);
  EXPECT_EQ(options.tokenizer, "t");
  EXPECT_FALSE(options.no_weights);
}

// Nothing is read and then ignored.
TEST(CommandLine, Inspect) {
  const auto command =
      parse({"inspect", "m", "d", "--json", "--max-model-len", "16K", "--kv-cache-memory-bytes",
             "5G", "--gpu_memory_utilization", "0.5", "--max-num-seqs", "2", "--revision", "abc"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  const auto& options = std::get<InspectOptions>(*command);
  EXPECT_EQ(options.model.model, "m");
  EXPECT_EQ(options.draft, "d");
  EXPECT_EQ(options.model.revision, "abc");
  EXPECT_TRUE(options.json);
  EXPECT_EQ(options.model.max_length, 16384);
  EXPECT_EQ(options.model.kv_cache_bytes, int64_t{5} << 30);
  EXPECT_EQ(options.model.memory_utilization, 0.5);
  EXPECT_EQ(options.model.slots, 2);
  EXPECT_THAT(parse({"inspect"}).error().message, HasSubstr("needs a MODEL"));
  EXPECT_THAT(parse({"inspect", "a", "b", "c"}).error().message,
              HasSubstr("takes MODEL and DRAFT, and 'c'"));
  EXPECT_THAT(parse({"inspect", "a", "--jsno"}).error().message, HasSubstr("--json"));
}

TEST(CommandLine, OptionsThatHaveNothingToActOn) {
  EXPECT_THAT(error({"serve", "m", "--dummy-seed", "1"}), HasSubstr("--load-format dummy"));
  EXPECT_THAT(error({"serve", "m", "--load-format", "auto", "--dummy-routing-overlap", "0.4"}),
              HasSubstr("--dummy-routing-overlap acts on random weights"));
  EXPECT_THAT(error({"generate", "m", "--prompt", "x", "--synthetic-acceptance", ".5"}),
              HasSubstr("add --speculative-config"));
  EXPECT_THAT(error({"bench", "m", "--k", "0,3"}), HasSubstr("add --speculative-config"));
  EXPECT_THAT(error({"bench", "m", "--speculative-config", kDraft, "--k", "0",
                     "--synthetic-acceptance", ".5"}),
              HasSubstr("--k asks for none"));
  EXPECT_THAT(error({"bench", "m", "--timeout", "3"}), HasSubstr("--timeout is for a server"));
  EXPECT_THAT(error({"bench", "m", "--random-context"}),
              HasSubstr("--random-context acts on random weights"));
  EXPECT_THAT(error({"bench", "m", "--random-proposals"}), HasSubstr("add --k"));
  EXPECT_THAT(error({"bench", "m", "--random-proposals", "--k", "0"}), HasSubstr("add --k"));
  EXPECT_THAT(
      error({"bench", "m", "--random-proposals", "--k", "3", "--speculative-config", kDraft}),
      HasSubstr("leave --speculative-config"));
  for (const char* flag : {"--random-context", "--random-proposals"}) {
    EXPECT_THAT(error({"bench", "--url", "http://h", flag}),
                HasSubstr(std::string(flag) + " acts on a model in this process"));
  }
  for (const auto& [option, value] :
       std::vector<std::pair<const char*, const char*>>{{"--threads", "1"},
                                                        {"--k", "1"},
                                                        {"--dummy-seed", "1"},
                                                        {"--max-model-len", "1"},
                                                        {"--revision", "main"},
                                                        {"--backend", "cpu"},
                                                        {"--kv-cache-dtype", "fp8"}}) {
    EXPECT_THAT(error({"bench", "--url", "http://h", option, value}),
                HasSubstr(std::string(option) + " acts on a model in this process"));
  }
  EXPECT_THAT(error({"bench", "m", "--url", "http://h"}), HasSubstr("not both"));
  EXPECT_THAT(error({"synth", "--config", "c", "--out", "o", "--no-weights", "--seed", "1"}),
              HasSubstr("--seed acts on weights"));
}

TEST(CommandLine, ANumberOfProposalsThatIsChosen) {
  const auto command = parse({"bench", "m", "--speculative-config", kDraft, "--k", "0,auto,3"});
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(std::get<BenchOptions>(*command).proposals,
            (std::vector<int>{0, ModelOptions::kAdaptive, 3}));
  EXPECT_THAT(error({"bench", "m", "--k", "auto"}), HasSubstr("add --speculative-config"));
  EXPECT_THAT(error({"bench", "m", "--speculative-config", kDraft, "--k", "auto",
                     "--synthetic-acceptance", ".5"}),
              HasSubstr("--k auto chooses by what the target accepts"));
  for (const std::string wrong : {"automatic", "auto,", "3,,auto", "-1", "-2", ",", "AUTO"}) {
    EXPECT_THAT(error({"bench", "m", "--speculative-config", kDraft, "--k", wrong.c_str()}),
                HasSubstr("--k must be numbers from 0 to 1024, or auto, with commas between them, "
                          "not '" +
                          wrong + "'"));
  }
}

TEST(CommandLine, SeedsAreWholeNumbers) {
  const char* const kMost = "18446744073709551615";
  for (const std::string seed :
       {"-1", "18446744073709551616", "1e3", "0x10", "", " 1", "1.5", "010"}) {
    const std::string expected =
        "must be a whole number from 0 to 18446744073709551615, not '" + seed + "'";
    EXPECT_THAT(error({"bench", "m", "--seed", seed.c_str()}), HasSubstr(expected));
    EXPECT_THAT(error({"synth", "--config", "c", "--out", "o", "--seed", seed.c_str()}),
                HasSubstr(expected));
    EXPECT_THAT(error({"serve", "m", "--load-format", "dummy", "--dummy-seed", seed.c_str()}),
                HasSubstr(expected));
  }
  EXPECT_EQ(std::get<BenchOptions>(*parse({"bench", "m", "--seed", kMost})).seed, UINT64_MAX);
  EXPECT_EQ(std::get<BenchOptions>(*parse({"bench", "m", "--seed", "0"})).seed, 0u);
}

TEST(CommandLine, SharesOfExpertsLieBetween0And1) {
  for (const char* share : {"nan", "-0.1", "1.1", "x", ""}) {
    EXPECT_THAT(error({"synth", "--config", "c", "--out", "o", "--dummy-routing-overlap", share}),
                HasSubstr("--dummy-routing-overlap: must be a number from 0 to 1"));
    EXPECT_THAT(error({"bench", "m", "--load-format", "dummy", "--dummy-routing-overlap", share}),
                HasSubstr("--dummy-routing-overlap: must be a number from 0 to 1"));
  }
}

// What cannot be verified as it stands is not measured as something else.
TEST(CommandLine, ProposalsThatAStepOrAnAnswerHasNoRoomFor) {
  EXPECT_THAT(error({"bench", "m", "--random-proposals", "--k", "0,600", "--output-len", "4096"}),
              HasSubstr("--k 600 and --streams 1 make steps of 601 rows, and a step has at most "
                        "512: ask for less"));
  EXPECT_THAT(error({"bench", "m", "--speculative-config", kDraft, "--k", "15", "--streams", "64"}),
              HasSubstr("--k 15 and --streams 64 make steps of 1024 rows"));
  EXPECT_EQ(
      error({"bench", "m", "--speculative-config", kDraft, "--k", "7,auto", "--streams", "64"}),
      "");
  EXPECT_THAT(error({"bench", "m", "--random-proposals", "--k", "15", "--output-len", "32"}),
              HasSubstr("--output-len is 32, and the last 16 steps of an answer verify fewer than "
                        "15 proposals: ask for 34 tokens or more"));
  EXPECT_EQ(error({"bench", "m", "--random-proposals", "--k", "15", "--output-len", "34"}), "");
}

TEST(CommandLine, RatesOfSyntheticAcceptance) {
  EXPECT_THAT(
      error({"bench", "m", "--speculative-config", kDraft, "--synthetic-acceptance", ".5,.6"}),
      HasSubstr("0.6 after 0.5"));
  EXPECT_THAT(error({"bench", "m", "--speculative-config", kDraft, "--synthetic-acceptance",
                     ".5,.4", "--k", "3"}),
              HasSubstr("2 rates, and --k asks for 3"));
  for (const char* rates : {"1.1", "-.1", "x", "nan", "", ".5,", ",.5", ".5,,.4", "0x1", ".5 "}) {
    EXPECT_THAT(
        error({"serve", "m", "--speculative-config", kDraft, "--synthetic-acceptance", rates}),
        HasSubstr("--synthetic-acceptance"))
        << rates;
  }
}

TEST(CommandLine, WhatIsWrongWithBenchAndSynth) {
  EXPECT_THAT(error({"bench"}), HasSubstr("needs a MODEL"));
  EXPECT_THAT(error({"bench", "m", "--streams", "0"}), HasSubstr("--streams"));
  EXPECT_THAT(error({"bench", "m", "--streams", "1,x"}),
              HasSubstr("--streams must be numbers from 1 to 256"));
  EXPECT_THAT(error({"bench", "m", "--input-len", "1k"}), HasSubstr("--input-len"));
  EXPECT_THAT(error({"bench", "m", "--output-len", "1"}), HasSubstr("--output-len"));
  EXPECT_THAT(error({"bench", "m", "--ouput-len", "9"}), HasSubstr("the nearest is --output-len"));
  EXPECT_THAT(error({"bench", "m", "--load-format", "gguf"}), HasSubstr("--load-format"));
  EXPECT_THAT(error({"synth", "--config", "c"}), HasSubstr("--out DIR"));
  EXPECT_THAT(error({"synth", "c"}), HasSubstr("takes options only, and 'c' is left over"));
  EXPECT_THAT(error({"synth", "--config", "c", "--out", "o", "--layers", "0"}),
              HasSubstr("--layers"));
}

// "$UNSET" of a script: never another meaning, such as listening on all addresses.
TEST(CommandLine, EmptyValuesAreRefused) {
  for (const char* option : {"--host", "--speculative-config", "--served-model-name",
                             "--max-model-len", "--default-chat-template-kwargs"}) {
    EXPECT_THAT(error({"serve", "m", option, ""}), HasSubstr(option));
  }
}

TEST(CommandLine, HelpAndVersion) {
  EXPECT_THAT(std::get<Information>(*parse({"--version"})).text, HasSubstr("lagoon 0."));
  EXPECT_THAT(std::get<Information>(*parse({"--help"})).text, HasSubstr("serve"));
  EXPECT_THAT(std::get<Information>(*parse({"serve", "--help"})).text,
              HasSubstr("--speculative-config"));
}

TEST(ParseLength, OnlyPlainNumbers) {
  for (const char* text : {"0x10", "1e3", " 16", "+16", "16 ", "k", "", "1.5", "0"}) {
    EXPECT_FALSE(parse_length(text).ok()) << text;
  }
}

TEST(ParseLength, Units) {
  EXPECT_EQ(*parse_length("4096"), 4096);
  EXPECT_EQ(*parse_length("256k"), 256'000);
  EXPECT_EQ(*parse_length("256K"), 262'144);
  EXPECT_EQ(*parse_length("25.6k"), 25'600);
  EXPECT_EQ(*parse_length("1m"), 1'000'000);
  EXPECT_EQ(*parse_length("auto"), 0);
  for (const char* bad : {"", "k", "0", "-2", "1x", "1kk", "1.5", "1e99", "nan", "12 "}) {
    EXPECT_FALSE(parse_length(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace lagoon::app
