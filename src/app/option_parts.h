// Parts of the command line that options.cpp puts together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/options.h"
#include "base/result.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
class Validator;
}  // namespace CLI

namespace lagoon::app {

// Adds an option of which the last one given counts. `App` is CLI::App, which this header leaves
// incomplete.
template <typename App, typename T>
auto* add(App& command, const std::string& name, T& value, const std::string& help,
          const std::string& type) {
  return command.add_option(name, value, help)->take_last()->type_name(type);
}

// For options where an empty value is a slip, such as an unset variable of a script.
const CLI::Validator& not_empty();

// Numbers from `least` to `most`. CLI::Range takes "nan" as well, which is in no order to either.
CLI::Validator within(double least, double most);

// Whole numbers of 64 bits without a sign. The conversion alone takes "-1" and what is too large as
// the largest of them, "010" as 8 and "" as 0.
const CLI::Validator& whole_number();

// An option of the command that is nearest to `name` ("--prot"): "--port".
std::string nearest_option(const CLI::App& command, const std::string& name);
// The word of the list that takes the fewest changes.
std::string nearest(const std::string& name, const std::vector<std::string>& known);

// Options that size memory, as they were given.
struct MemoryTexts {
  std::string max_batched_tokens;
  std::string kv_cache_bytes;
};

// --max-num-seqs, --max-num-batched-tokens, --kv-cache-memory-bytes, --gpu-memory-utilization.
void add_memory_options(CLI::App& command, ModelOptions& options, MemoryTexts& texts);
Result<void> finish_memory(const MemoryTexts& texts, ModelOptions& options);

// Texts of the options of `lagoon serve` that need more than a conversion.
struct ServeTexts {
  std::string model;  // --model
  std::string config;
  MemoryTexts memory;
  std::string api_key_file;
  int tensor_parallel_size = 1;
  std::string moe_backend;
  std::string tool_call_parser;
  std::string reasoning_parser;
  std::string log_format;
  bool enforce_eager = false;
  bool trust_remote_code = false;
  bool prefix_caching = false;
  bool chunked_prefill = true;
  bool auto_tool_choice = true;
  bool no_log_stats = false;
  bool request_id_headers = false;
  bool prompt_tokens_details = false;
};

// All of `lagoon serve` but what it has in common with the other commands (which it puts into
// groups for --help).
void add_serve_options(CLI::App& command, ServeOptions& options, ServeTexts& texts);
// Takes the texts apart, reads the file of API keys, and compares options with each other.
Result<void> finish_serve(const CLI::App& command, const ServeTexts& texts, ServeOptions& options);

// Options that are lists, as they were given: "1,4,8".
struct ListTexts {
  std::string synthetic_acceptance;
  std::string streams;
  std::string proposals;
};

// --dummy-seed, --dummy-routing-overlap, --synthetic-acceptance.
void add_dummy_options(CLI::App& command, ModelOptions& options, ListTexts& lists);
// All of `lagoon bench` but the model's.
void add_bench_options(CLI::App& command, BenchOptions& options, ListTexts& lists);
void add_synth_options(CLI::App& command, SynthOptions& options);

// Takes --synthetic-acceptance from its text. Errors: not a list of rates, rates that rise, no
// draft to act on.
Result<void> finish_synthetic_acceptance(const ListTexts& lists, ModelOptions& options);
// The engine verifies fewer proposals where a step has no rows for all of them, and where an answer
// needs no more: a row of the table would then say one k and show another. Error: `most` proposals
// are too many for the streams, or random ones for the answers.
Result<void> check_rows(const BenchOptions& options, int most);
// Takes the other lists from their texts, and compares what `lagoon bench` needs of its options
// together.
Result<void> finish_bench_lists(const ListTexts& lists, BenchOptions& options);

}  // namespace lagoon::app
