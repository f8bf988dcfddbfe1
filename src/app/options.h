// The command line. Option names and meanings follow `vllm serve` where it has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace lagoon::app {

// What every command that loads a model takes.
struct ModelOptions {
  std::string model;                       // a directory, a bundled model, a repository's id
  std::string revision;                    // of that repository; "": main
  std::string speculative_config;          // JSON, or "" for no draft
  int64_t max_length = 0;                  // prompt and answer; 0: all that the model was made for
  bool fit_length = false;                 // max_length 0: at most what kv_cache_bytes hold, too
  int threads = 0;                         // 0: as many as the machine has, at most 8
  std::string backend = "auto";            // or "cpu", "cuda", "ref"
  bool graphs = true;                      // on a GPU: steps as CUDA graphs
  std::string kv_cache_dtype = "auto";     // or "bfloat16", "fp8", "fp8_e4m3" (the same)
  int64_t enough_length = 0;               // > 0: where max_length is 0, at most that much
  int slots = 4;                           // requests computed at a time (--max-num-seqs)
  int max_batched_tokens = 0;              // rows of a step; 0: the engine's own choice
  int64_t kv_cache_bytes = 0;              // of the pages of full layers; 0: slots * max_length
  double memory_utilization = 0;           // share of the memory that the plan may take; 0: all
  std::string generation_config = "auto";  // or "vllm" (none), or a directory
  std::string override_generation_config;  // JSON, or ""
  std::string tokenizer;  // the directory or bundled model it is from; "": the model's own

  // --load-format dummy: weights are made for the configs, none are read.
  bool dummy = false;
  uint64_t dummy_seed = 0;
  double dummy_routing_overlap = 0;     // 0: rows choose experts independently
  bool random_caches = false;           // keys and values begin as random numbers
  int foreign_proposals = 0;            // > 0: so many random tokens are verified, without a draft
  static constexpr int kAdaptive = -2;  // k is chosen as it goes
  int proposals = -1;                   // in place of num_speculative_tokens; -1: that; kAdaptive
  bool require_draft = false;           // a draft that is of no use is an error
  // Probabilities that proposals 0..i all stand; empty: the target decides.
  std::vector<double> synthetic_acceptance;
};

struct ServeOptions {
  ModelOptions model;
  std::vector<std::string> served_names;  // empty: the model's own
  std::string default_template_kwargs;    // JSON, or ""

  std::string host = "127.0.0.1";
  uint16_t port = 8000;
  std::string socket_path;  // a Unix socket in place of host and port, or ""
  std::string root_path;    // "/prefix", or ""
  std::vector<std::string> api_keys;
  std::vector<std::string> allowed_origins = {"*"};
  std::vector<std::string> allowed_methods = {"*"};
  std::vector<std::string> allowed_headers = {"*"};
  bool allow_credentials = false;
  std::string tls_certificate;  // files; "" where there is no TLS
  std::string tls_key;
  std::string tls_client_ca;
  int tls_client_certificates = 0;  // 0: none, 1: optional, 2: required

  int64_t max_body_bytes = 64 << 20;
  int max_connections = 4096;
  int idle_timeout = 75;  // seconds
  int read_timeout = 30;
  int receive_timeout = 300;
  int write_timeout = 120;
  int shutdown_timeout = 30;
  int stall_timeout =
      60;  // seconds without a step while requests run, then the server ends; 0: never

  bool force_include_usage = false;
  bool strict_model_name = false;
  bool thinking_signatures = true;
  int64_t max_response_store_bytes = 64 << 20;
  bool log_requests = false;
  int max_log_bytes = 1000;  // of a request's body
  bool log_stats = true;
  bool json_log = false;
  std::string log_level = "info";
  // Lines for the start: what was given and changes nothing.
  std::vector<std::string> remarks;
};

struct GenerateOptions {
  ModelOptions model;
  std::string prompt;
  bool raw = false;    // the prompt as it is, not as a user's message
  int max_tokens = 0;  // 0: the rest of the context
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int> top_k;
  std::optional<int64_t> seed;
  bool thinking = false;
};

struct SynthOptions {
  std::string config;  // a config.json, or a directory or bundled model that has one
  std::string out;     // a directory that is new or empty
  int layers = 0;      // of the target; 0: all
  uint64_t seed = 0;
  double routing_overlap = 0;
  std::string tokenizer;    // whose tokenizer files are copied; "": the config's own directory
  bool no_weights = false;  // config and tokenizer only
};

struct InspectOptions {
  ModelOptions model;  // its model may be a config.json
  std::string draft;   // a directory, a config.json or a bundled model; "": none
  bool json = false;
};

struct BenchOptions {
  ModelOptions model;        // of a model in this process
  std::string url;           // of a server, in its place
  std::string served_model;  // its name in requests to the server; "": the first the server lists
  bool chat = false;         // prompts are a user's messages
  int input_length = 2048;
  int output_length = 256;
  int warmup = 1;
  int repeats = 3;
  std::vector<int> streams = {1};
  std::vector<int> proposals;  // values of k, or kAdaptive; empty: that of --speculative-config
  double temperature = 0;
  uint64_t seed = 0;
  bool stop_at_eos = false;
  bool random_context = false;    // prompts count as computed; --load-format dummy
  bool random_proposals = false;  // k random tokens are verified, without a draft
  std::string json;               // a file for the figures, or ""
  int timeout = 600;              // seconds that a server may be silent
};

// --help or --version: to be printed on stdout.
struct Information {
  std::string text;
};

using Command = std::variant<ServeOptions, GenerateOptions, InspectOptions, BenchOptions,
                             SynthOptions, Information>;

// Of an option given twice the last one counts; '_' in an option's name counts as '-'. An option
// that does not exist is an error that names the nearest one that does. `lagoon serve` also reads
// its options from the variables LAGOON_... of `environment` (as environ(7), ends with null; null:
// none) and from the file of --config; the command line goes before the environment, and that
// before the file.
Result<Command> parse_command_line(int argc, const char* const* argv,
                                   const char* const* environment = nullptr);

// A number of tokens or bytes, at least 1: "4096", "16k" (16,000), "16K" (16,384), "1m", "1.5M",
// "12G" as vLLM reads them. Errors name `option`.
Result<int64_t> parse_count(std::string_view option, const std::string& text);

// As parse_count() for --max-model-len; "auto" and "-1" are 0.
Result<int64_t> parse_length(const std::string& text);

}  // namespace lagoon::app
