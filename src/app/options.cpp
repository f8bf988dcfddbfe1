#include "app/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <span>

#include "app/option_parts.h"
#include "app/option_sources.h"

namespace lagoon::app {
namespace {

constexpr std::string_view kServedNames = "--served-model-name";

bool is_option(std::string_view argument) {
  return argument.size() > 2 && argument.starts_with("--");
}

// Options' names with '-' for '_' (up to a dot: then a key of JSON follows). Of several
// --served-model-name the last one is kept, as for other options: the parser would join the lists
// of names.
std::vector<std::string> normalised(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  size_t last_names = arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string& argument = arguments[i];
    if (!is_option(argument)) continue;
    const size_t end = std::min(argument.find_first_of("=."), argument.size());
    std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
    if (argument.substr(0, argument.find('=')) == kServedNames) last_names = i;
  }
  std::vector<std::string> kept;
  bool dropping = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("-")) {
      const bool names = arguments[i].substr(0, arguments[i].find('=')) == kServedNames;
      dropping = names && i < last_names;
    }
    if (!dropping) kept.push_back(arguments[i]);
  }
  return kept;
}

struct Parser {
  CLI::App app{"Lagoon serves Laguna models with DFlash speculative decoding."};
  CLI::App* serve = nullptr;
  CLI::App* generate = nullptr;
  CLI::App* inspect = nullptr;
  CLI::App* bench = nullptr;
  CLI::App* synth = nullptr;
  ServeOptions serve_options;
  GenerateOptions generate_options;
  InspectOptions inspect_options;
  BenchOptions bench_options;
  SynthOptions synth_options;
  std::string max_length;
  std::string load_format;
  ListTexts lists;
  ServeTexts serve_texts;
  MemoryTexts inspect_texts;

  Parser();
  void add_model_options(CLI::App& command, ModelOptions& options);
  void add_serve();
  void add_generate();
  void add_inspect();
};

Parser::Parser() {
  app.name("lagoon");
  app.set_version_flag("--version", std::string("lagoon ") + LAGOON_VERSION);
  app.allow_extras();  // reported by us, with the nearest name
  app.footer("lagoon COMMAND --help tells a command's options.");
  add_serve();
  add_generate();
  add_inspect();
  bench = app.add_subcommand("bench", "Measures the speed of a model, or of a server");
  add_model_options(*bench, bench_options.model);
  add_bench_options(*bench, bench_options, lists);
  synth = app.add_subcommand("synth", "Writes a checkpoint of random weights");
  add_synth_options(*synth, synth_options);
  synth->allow_extras();  // reported by us, with the nearest name
}

void Parser::add_model_options(CLI::App& command, ModelOptions& options) {
  command.add_option("MODEL", options.model,
                     "A model directory, the name of a bundled model, or a repository's id such as "
                     "poolside/Laguna-S-2.1-NVFP4, which is looked for in the hub cache");
  add(command, "--revision", options.revision,
      "Of a repository in the hub cache: a branch, a tag or a commit; default: main", "REV")
      ->check(not_empty());
  add(command, "--max-model-len", max_length,
      "Longest prompt and answer together, in tokens (16k = 16,000, 16K = 16,384); default: what "
      "the model was made for",
      "N")
      ->check(not_empty());
  add(command, "--speculative-config", options.speculative_config,
      R"(The draft: {"method":"dflash","model":DIR,"num_speculative_tokens":K}, )"
      R"(K being chosen for each step if left out (3 on a GPU), and "revision" for a repository's )"
      "id; default: none",
      "JSON")
      ->check(not_empty());
  add(command, "--threads", options.threads, "Threads that compute; default: all, at most 8", "N")
      ->check(CLI::Range(1, 1024));
  add(command, "--backend", options.backend,
      "cpu: the processor's vector instructions; cuda: an NVIDIA GPU; auto: cuda where there is a "
      "GPU "
      "that this build has code for, else cpu; ref: the plain code that defines results, slow",
      "NAME")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "ref"}));
  add(command, "--kv-cache-dtype", options.kv_cache_dtype,
      "How keys and values are kept: bfloat16, fp8 (or fp8_e4m3), auto: as the model's "
      "quantization_config says, else bfloat16",
      "TYPE")
      ->check(CLI::IsMember({"auto", "bfloat16", "fp8", "fp8_e4m3"}));
  add(command, "--tokenizer", options.tokenizer,
      "Directory or bundled model with the tokenizer; default: the model's own", "DIR")
      ->check(not_empty());
  add(command, "--load-format", load_format,
      "auto: the model's weights; dummy: random weights made for its config, to measure speed "
      "(lagoon synth writes the same ones)",
      "FORMAT")
      ->check(CLI::IsMember({"auto", "safetensors", "dummy"}));
  add_dummy_options(command, options, lists);
  command.allow_extras();  // reported by us, with the nearest name
}

void Parser::add_serve() {
  serve = app.add_subcommand("serve", "Serves a model over HTTP, as OpenAI's API");
  add_model_options(*serve, serve_options.model);
  add_serve_options(*serve, serve_options, serve_texts);
}

void Parser::add_generate() {
  generate = app.add_subcommand("generate", "Answers one prompt on standard output");
  add_model_options(*generate, generate_options.model);
  add(*generate, "--prompt", generate_options.prompt, "What the user says", "TEXT");
  generate->add_flag("--raw", generate_options.raw, "Continue the prompt instead of answering it");
  add(*generate, "--max-tokens", generate_options.max_tokens,
      "Longest answer; default: the rest of the context", "N")
      ->check(CLI::Range(1, 1 << 30));
  add(*generate, "--temperature", generate_options.temperature,
      "0: always the likeliest token; default: the model's", "T")
      ->check(within(0, 1e6));
  add(*generate, "--top-p", generate_options.top_p, "Likeliest tokens up to this probability", "P")
      ->check(within(1e-9, 1));
  add(*generate, "--top-k", generate_options.top_k, "This many likeliest tokens; 0: all", "K")
      ->check(CLI::Range(-1, 1 << 30));
  add(*generate, "--seed", generate_options.seed, "Makes sampled text repeatable", "N");
  generate->add_flag("--thinking", generate_options.thinking, "Let the model think first");
}

void Parser::add_inspect() {
  inspect =
      app.add_subcommand("inspect", "Tells what a model is, and what it takes of this machine");
  ModelOptions& options = inspect_options.model;
  inspect->add_option(
      "MODEL", options.model,
      "A model directory (one that is still downloaded, too), a config.json, the name of a bundled "
      "model, or a repository's id, which is looked for in the hub cache");
  inspect->add_option("DRAFT", inspect_options.draft, "Its draft, the same way");
  inspect->add_flag("--json", inspect_options.json, "Print all of it as JSON");
  add(*inspect, "--revision", options.revision,
      "MODEL's, of a repository in the hub cache; default: main", "REV")
      ->check(not_empty());
  add(*inspect, "--max-model-len", max_length,
      "Longest prompt and answer together, in tokens; default: what the model was made for", "N")
      ->check(not_empty());
  add_memory_options(*inspect, options, inspect_texts);
  add(*inspect, "--kv-cache-dtype", options.kv_cache_dtype,
      "How keys and values are kept: bfloat16, fp8 (or fp8_e4m3), auto: as the model says", "TYPE")
      ->check(CLI::IsMember({"auto", "bfloat16", "fp8", "fp8_e4m3"}));
  add(*inspect, "--backend", options.backend, "As for lagoon serve", "NAME")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "ref"}));
  add(*inspect, "--threads", options.threads, "Threads that compute; default: all, at most 8", "N")
      ->check(CLI::Range(1, 1024));
  inspect->allow_extras();  // reported by us, with the nearest name
}

Error usage_error(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Result<void> check_extras(const CLI::App& command) {
  for (const std::string& extra : command.remaining()) {
    if (extra.starts_with("-")) {
      const std::string name = extra.substr(0, extra.find('='));
      return usage_error(fmt::format("lagoon {} has no option {}; the nearest is {}",
                                     command.get_name(), name, nearest_option(command, name)));
    }
    const char* const takes = command.get_option_no_throw("MODEL") == nullptr   ? "options only"
                              : command.get_option_no_throw("DRAFT") == nullptr ? "one MODEL"
                                                                                : "MODEL and DRAFT";
    return usage_error(
        fmt::format("lagoon {} takes {}, and '{}' is left over", command.get_name(), takes, extra));
  }
  return {};
}

// What is wrong with a command line that has no command.
Error no_command(const CLI::App& app) {
  const auto words = app.remaining();
  if (words.empty()) return usage_error("lagoon needs a command: lagoon --help lists them");
  const std::string& word = words.front();
  const bool option = word.starts_with("-");
  return usage_error(
      fmt::format("lagoon has no {} {}; the nearest is {}", option ? "option" : "command", word,
                  option ? nearest_option(app, word)
                         : nearest(word, {"serve", "generate", "inspect", "bench", "synth"})));
}

// The options of `command` that were given, of those with these names.
std::vector<std::string> given(const CLI::App& command, std::span<const std::string_view> names) {
  std::vector<std::string> found;
  for (const std::string_view name : names) {
    if (command.count(std::string(name)) > 0) found.emplace_back(name);
  }
  return found;
}

// MODEL and --model. `arguments` is the command line alone: a file or the environment may name a
// model that the command line replaces.
Result<void> choose_model(Parser& parser, const std::vector<std::string>& arguments) {
  std::string& model = parser.serve_options.model.model;
  const std::string& other = parser.serve_texts.model;
  const bool both = std::any_of(arguments.begin(), arguments.end(), [](const std::string& word) {
    return word == "--model" || word.starts_with("--model=");
  });
  if (!model.empty() && both && other != model) {
    return usage_error(fmt::format(
        "lagoon serve takes one model, and '{}' and --model '{}' are two", model, other));
  }
  if (model.empty()) model = other;
  return {};
}

Result<void> finish_length(const Parser& parser, ModelOptions& model) {
  if (parser.max_length.empty()) return {};
  LAGOON_ASSIGN(model.max_length, parse_length(parser.max_length));
  model.fit_length = model.max_length == 0;
  if (model.max_length != 1) return {};
  return usage_error("--max-model-len 1 has no room for a prompt and an answer: the least is 2");
}

// What a command that loads a model still has to check when its options are known one by one.
Result<void> finish_model(const CLI::App& command, const Parser& parser, ModelOptions& model) {
  if (model.model.empty()) {
    return usage_error(
        fmt::format("lagoon {} needs a MODEL: a model directory, or the name of a "
                    "bundled model such as laguna-nano-nvfp4 (words after --api-key and "
                    "--served-model-name count as theirs: put MODEL first)",
                    command.get_name()));
  }
  LAGOON_RETURN_IF_ERROR(finish_length(parser, model));
  model.dummy = parser.load_format == "dummy";
  std::vector<std::string_view> of_dummy = {"--dummy-seed", "--dummy-routing-overlap"};
  if (command.get_name() == "bench") of_dummy.emplace_back("--random-context");
  if (const auto idle = given(command, of_dummy); !model.dummy && !idle.empty()) {
    return usage_error(
        fmt::format("{} acts on random weights, and these are the model's own: add "
                    "--load-format dummy or leave it out",
                    idle.front()));
  }
  return finish_synthetic_acceptance(parser.lists, model);
}

Result<Command> finish_bench(Parser& parser) {
  constexpr std::string_view kInProcess[] = {"--revision",
                                             "--backend",
                                             "--kv-cache-dtype",
                                             "--max-model-len",
                                             "--speculative-config",
                                             "--threads",
                                             "--tokenizer",
                                             "--load-format",
                                             "--dummy-seed",
                                             "--k",
                                             "--dummy-routing-overlap",
                                             "--synthetic-acceptance",
                                             "--random-context",
                                             "--random-proposals"};
  constexpr std::string_view kServer[] = {"--served-model", "--timeout"};
  BenchOptions& options = parser.bench_options;
  if (options.url.empty()) {
    if (const auto idle = given(*parser.bench, kServer); !idle.empty()) {
      return usage_error(
          fmt::format("{} is for a server: give its --url, or leave it out", idle.front()));
    }
    LAGOON_RETURN_IF_ERROR(finish_model(*parser.bench, parser, options.model));
  } else {
    if (!options.model.model.empty()) {
      return usage_error(
          "lagoon bench takes a MODEL in this process or a server's --url, not both");
    }
    if (const auto idle = given(*parser.bench, kInProcess); !idle.empty()) {
      return usage_error(
          fmt::format("{} acts on a model in this process; with --url the server "
                      "decides: start it with that, and leave it out here",
                      idle.front()));
    }
  }
  LAGOON_RETURN_IF_ERROR(finish_bench_lists(parser.lists, options));
  return Command(options);
}

Result<Command> finish_inspect(Parser& parser) {
  ModelOptions& model = parser.inspect_options.model;
  if (model.model.empty()) {
    return usage_error(
        "lagoon inspect needs a MODEL: a model directory, a config.json, or the name of a bundled "
        "model such as laguna-nano-nvfp4");
  }
  LAGOON_RETURN_IF_ERROR(finish_length(parser, model));
  LAGOON_RETURN_IF_ERROR(finish_memory(parser.inspect_texts, model));
  return Command(parser.inspect_options);
}

Result<Command> finish_synth(Parser& parser) {
  if (parser.synth_options.config.empty() || parser.synth_options.out.empty()) {
    return usage_error("lagoon synth needs --config CONFIG and --out DIR");
  }
  constexpr std::string_view kWeights[] = {"--seed", "--dummy-routing-overlap"};
  if (const auto idle = given(*parser.synth, kWeights);
      parser.synth_options.no_weights && !idle.empty()) {
    return usage_error(
        fmt::format("{} acts on weights, and with --no-weights none are made: leave "
                    "one of them out",
                    idle.front()));
  }
  return Command(parser.synth_options);
}

Result<Command> finish(Parser& parser, const std::vector<std::string>& arguments) {
  const auto chosen = parser.app.get_subcommands();
  if (chosen.empty()) return no_command(parser.app);
  const CLI::App& command = *chosen.front();
  LAGOON_RETURN_IF_ERROR(check_extras(command));
  if (parser.inspect->parsed()) return finish_inspect(parser);
  if (parser.bench->parsed()) return finish_bench(parser);
  if (parser.synth->parsed()) return finish_synth(parser);
  const bool serving = parser.serve->parsed();
  if (serving) LAGOON_RETURN_IF_ERROR(choose_model(parser, arguments));
  LAGOON_RETURN_IF_ERROR(finish_model(
      command, parser, serving ? parser.serve_options.model : parser.generate_options.model));
  if (serving) {
    LAGOON_RETURN_IF_ERROR(finish_serve(command, parser.serve_texts, parser.serve_options));
    return Command(parser.serve_options);
  }
  if (command.get_option("--prompt")->count() == 0) {
    return usage_error("lagoon generate needs --prompt TEXT");
  }
  return Command(parser.generate_options);
}

// The value of --config, on the command line or in the environment; "" for none.
std::string config_file(const std::vector<std::string>& arguments,
                        const std::vector<Setting>& environment) {
  constexpr std::string_view kConfig = "--config";
  std::string path;
  for (const Setting& setting : environment) {
    if (setting.name == kConfig) path = setting.values.front();
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--config=")) path = arguments[i].substr(kConfig.size() + 1);
    if (arguments[i] == kConfig && i + 1 < arguments.size()) path = arguments[i + 1];
  }
  return path;
}

// The parser takes "[a,b]" apart by itself, and not as JSON is; a blank in front keeps it whole. It
// goes again where such a value is no list (finish_serve).
void keep_lists_whole(std::vector<std::string>& words) {
  const auto takes_lists = [](std::string_view word) {
    const std::string_view name = word.substr(0, word.find('='));
    return name.starts_with("--allowed-") || name == "--api-key" || name == "--served-model-name";
  };
  bool inside = false;
  for (std::string& word : words) {
    if (word.starts_with("--")) inside = takes_lists(word);
    const size_t begin = word.starts_with("--") ? word.find("=[") + 1 : 0;
    if (inside && begin < word.size() && word[begin] == '[') word.insert(begin, " ");
  }
}

Result<std::vector<std::string>> with_sources(Parser& parser,
                                              const std::vector<std::string>& arguments,
                                              const char* const* environment) {
  const CLI::App& command = *parser.serve;
  std::vector<std::vector<Setting>> sources;
  const auto variables = read_environment(command, environment, parser.serve_options.remarks);
  if (const std::string path = config_file(arguments, variables); !path.empty()) {
    LAGOON_ASSIGN(auto settings, read_config_file(path));
    sources.push_back(std::move(settings));
  }
  sources.push_back(variables);
  LAGOON_ASSIGN(auto merged, merge_sources(command, arguments, sources));
  keep_lists_whole(merged);
  return merged;
}

}  // namespace

Result<int64_t> parse_count(std::string_view option, const std::string& text) {
  double value = 0;
  size_t used = 0;
  try {
    // No sign, blank, exponent or hexadecimal digits, which stod() would take.
    if (text.find_first_not_of("0123456789.kmgKMG") == std::string::npos) {
      value = std::stod(text, &used);
    }
  } catch (const std::exception&) {
    used = 0;
  }
  double unit = 1;
  if (used + 1 == text.size()) {
    const std::string_view units = "kmgKMG";
    constexpr double kUnits[] = {1e3, 1e6, 1e9, 1024, 1024.0 * 1024, 1024.0 * 1024 * 1024};
    const size_t at = units.find(text.back());
    if (at == std::string_view::npos) used = 0;
    if (at != std::string_view::npos) unit = kUnits[at];
  } else if (used != text.size()) {
    used = 0;
  }
  const double count = value * unit;
  if (used == 0 || !(count >= 1) || count > 1e15 || count != std::trunc(count)) {
    return usage_error(
        fmt::format("{} must be a number such as 16384 or 16K, not '{}'", option, text));
  }
  return static_cast<int64_t>(count);
}

Result<int64_t> parse_length(const std::string& text) {
  if (text == "auto" || text == "-1") return int64_t{0};
  constexpr std::string_view kOption = "--max-model-len";
  LAGOON_ASSIGN(const int64_t tokens, parse_count(kOption, text));
  if (tokens <= 1'000'000'000'000) return tokens;
  return usage_error(fmt::format("{} is {}, and no model takes so many tokens", kOption, text));
}

Result<Command> parse_command_line(int argc, const char* const* argv,
                                   const char* const* environment) {
  Parser parser;
  const std::vector<std::string> given = normalised(argc, argv);
  std::vector<std::string> arguments = given;
  if (!given.empty() && given.front() == parser.serve->get_name()) {
    LAGOON_ASSIGN(arguments, with_sources(parser, given, environment));
  }
  std::reverse(arguments.begin(), arguments.end());  // as the parser wants them
  try {
    parser.app.parse(arguments);
  } catch (const CLI::CallForVersion&) {
    return Command(Information{parser.app.version() + "\n"});
  } catch (const CLI::CallForHelp&) {
    const auto chosen = parser.app.get_subcommands();
    return Command(
        Information{chosen.empty() ? parser.app.help() : chosen.front()->help("lagoon")});
  } catch (const CLI::ExtrasError& error) {
    return usage_error(
        fmt::format("there is no such command or option; lagoon --help lists them "
                    "({})",
                    error.what()));
  } catch (const CLI::ParseError& error) {
    return usage_error(fmt::format("{}; lagoon --help lists what there is", error.what()));
  }
  return finish(parser, given);
}

}  // namespace lagoon::app
