// The options of `lagoon serve`: names and meanings of vLLM's, and what is not done says so.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "app/option_parts.h"

namespace lagoon::app {
namespace {

constexpr int kMaxListed = 64;

Error usage_error(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

CLI::Option* add_list(CLI::App& command, const std::string& name, std::vector<std::string>& list,
                      const std::string& help, const std::string& type) {
  return command.add_option(name, list, help)
      ->expected(1, kMaxListed)
      ->type_name(type)
      ->check(not_empty());
}

void add_model_parts(CLI::App& command, ServeOptions& options, ServeTexts& texts) {
  add(command, "--model", texts.model, "The same as MODEL", "MODEL")->check(not_empty());
  add_list(command, "--served-model-name", options.served_names,
           "Names that requests may use; the first is told in answers; default: the directory's "
           "name",
           "NAME");
  add(command, "--default-chat-template-kwargs", options.default_template_kwargs,
      R"(Variables for the chat template where a request sets none: {"enable_thinking":true})",
      "JSON")
      ->check(not_empty());
  add(command, "--generation-config", options.model.generation_config,
      "Where sampling defaults come from: auto: the model's generation_config.json; vllm: nowhere; "
      "or a directory that has one",
      "WHERE")
      ->check(not_empty());
  add(command, "--override-generation-config", options.model.override_generation_config,
      R"(Sampling defaults in place of the file's: {"temperature":0.7,"top_p":0.95,"top_k":20})",
      "JSON")
      ->check(not_empty());
  command.add_flag("--require-draft,!--no-require-draft", options.model.require_draft,
                   "Do not start where less than 10 % of what the draft proposes on code is "
                   "accepted; else the server goes on without the draft");
  command.add_flag("--trust-remote-code", texts.trust_remote_code,
                   "Accepted; has no effect, since no code of a model is run");
}

void add_computing(CLI::App& command, ServeOptions& options, ServeTexts& texts) {
  add_memory_options(command, options.model, texts.memory);
  command.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", texts.prefix_caching,
                   "Accepted; has no effect yet");
  command.add_flag("--enable-chunked-prefill,!--no-enable-chunked-prefill", texts.chunked_prefill,
                   "Always on");
  command.add_flag("--enforce-eager,!--no-enforce-eager", texts.enforce_eager,
                   "No captured graphs");
  add(command, "--moe-backend", texts.moe_backend, "Accepted; has no effect", "NAME")
      ->check(not_empty());
  add(command, "--tensor-parallel-size", texts.tensor_parallel_size, "1 is all there is yet", "N")
      ->check(CLI::Range(1, 1024));
}

void add_answers(CLI::App& command, ServeOptions& options, ServeTexts& texts) {
  command.add_flag("--enable-auto-tool-choice,!--no-enable-auto-tool-choice",
                   texts.auto_tool_choice, "Always on");
  add(command, "--tool-call-parser", texts.tool_call_parser, "poolside_v1, which is always on",
      "NAME")
      ->check(CLI::IsMember({"poolside_v1"}));
  add(command, "--reasoning-parser", texts.reasoning_parser, "poolside_v1, which is always on",
      "NAME")
      ->check(CLI::IsMember({"poolside_v1"}));
  command.add_flag("--enable-force-include-usage,!--no-enable-force-include-usage",
                   options.force_include_usage, "Streams end with usage whether or not asked for");
  command.add_flag("--strict-model-name", options.strict_model_name,
                   "/v1/messages takes only the names that are served; unless given, any");
  command.add_flag("--thinking-signatures,!--no-thinking-signatures", options.thinking_signatures,
                   "/v1/messages: thinking blocks carry a made-up signature, on unless switched "
                   "off");
  command.add_flag("--enable-prompt-tokens-details", texts.prompt_tokens_details,
                   "Accepted; usage always tells prompt_tokens_details");
}

void add_network(CLI::App& command, ServeOptions& options, ServeTexts& texts) {
  add(command, "--host", options.host,
      "Address to listen on; default: 127.0.0.1, this machine only (0.0.0.0: all)", "HOST")
      ->check(not_empty());
  add(command, "--port", options.port, "Port to listen on; default: 8000 (0: any free one)", "PORT")
      ->check(CLI::Range(0, 65535));
  add(command, "--uds", options.socket_path, "Unix socket to listen on, in place of host and port",
      "PATH")
      ->check(not_empty());
  add(command, "--root-path", options.root_path,
      "Prefix that a proxy puts before paths; requests are taken with and without it", "PATH")
      ->check(not_empty());
  add_list(command, "--api-key", options.api_keys,
           "Keys that requests to /v1 must give one of (Authorization: Bearer KEY)", "KEY");
  add(command, "--api-key-file", texts.api_key_file, "More keys, one a line", "FILE")
      ->check(not_empty());
  add_list(command, "--allowed-origins", options.allowed_origins,
           R"(Web origins whose scripts may send requests; default: * (all); '[]': none)",
           "ORIGIN");
  add_list(command, "--allowed-methods", options.allowed_methods, "Methods of such; default: *",
           "METHOD");
  add_list(command, "--allowed-headers", options.allowed_headers, "Headers of such; default: *",
           "HEADER");
  command.add_flag("--allow-credentials,!--no-allow-credentials", options.allow_credentials,
                   "Let such requests carry cookies and the like");
  add(command, "--ssl-certfile", options.tls_certificate, "Certificate (PEM): serve HTTPS", "FILE")
      ->check(not_empty());
  add(command, "--ssl-keyfile", options.tls_key, "Its private key (PEM)", "FILE")
      ->check(not_empty());
  add(command, "--ssl-ca-certs", options.tls_client_ca,
      "Certificates of those who sign clients' certificates (PEM)", "FILE")
      ->check(not_empty());
  add(command, "--ssl-cert-reqs", options.tls_client_certificates,
      "Certificates of clients: 0 none, 1 optional, 2 required; default: 0", "N")
      ->check(CLI::Range(0, 2));
}

// Numbers with the suffixes of parse_count().
CLI::Option* with_suffixes(CLI::Option* option) {
  return option->transform([name = option->get_name()](const std::string& text) -> std::string {
    if (text == "0") return text;  // whether it may be none, the option's range says
    const auto count = parse_count(name, text);
    if (!count.ok()) throw CLI::ValidationError(count.error().message);
    return std::to_string(*count);
  });
}

void add_limits(CLI::App& command, ServeOptions& options) {
  with_suffixes(add(command, "--max-body-bytes", options.max_body_bytes,
                    "Largest body of a request; default: 64M", "BYTES"))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  with_suffixes(add(command, "--max-response-store-bytes", options.max_response_store_bytes,
                    "Answers of /v1/responses that are kept for previous_response_id, 0: none; "
                    "default: 64M",
                    "BYTES"))
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  add(command, "--max-connections", options.max_connections, "Connections at a time; default: 4096",
      "N")
      ->check(CLI::Range(1, 1 << 20));
  const auto seconds = [&](const char* name, int& value, const std::string& help, int least) {
    add(command, name, value, help, "S")->check(CLI::Range(least, 86400));
  };
  seconds("--idle-timeout", options.idle_timeout,
          "Seconds until a connection without a request is closed; default: 75", 1);
  seconds("--read-timeout", options.read_timeout,
          "Seconds for a request's header, and between two pieces of its body; default: 30", 1);
  seconds("--receive-timeout", options.receive_timeout,
          "Seconds for all of a request; default: 300", 1);
  seconds("--write-timeout", options.write_timeout,
          "Seconds that a client may take nothing of its answer; default: 120", 1);
  seconds("--shutdown-timeout", options.shutdown_timeout,
          "Seconds for running requests to end after SIGTERM; default: 30", 0);
  seconds("--stall-timeout", options.stall_timeout,
          "Seconds without a token while requests run, after which the server ends with an error; "
          "default: 60 (0: never)",
          0);
}

void add_log(CLI::App& command, ServeOptions& options, ServeTexts& texts) {
  add(command, "--log-format", texts.log_format, "text or json; default: text", "FORMAT")
      ->check(CLI::IsMember({"text", "json"}));
  add(command, "--log-level", options.log_level,
      "The least that is logged: debug, info, warning or error; default: info", "LEVEL")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  command.add_flag("--enable-log-requests,!--no-enable-log-requests", options.log_requests,
                   "Log the bodies of requests, with the prompts in them");
  with_suffixes(add(command, "--max-log-len", options.max_log_bytes,
                    "Bytes of a body that are logged; default: 1000", "N"))
      ->check(CLI::Range(1, 1 << 30));
  command.add_flag("--disable-log-stats", texts.no_log_stats,
                   "No line on speed and load every ten seconds");
  command.add_flag("--enable-request-id-headers", texts.request_id_headers,
                   "Accepted; answers always carry X-Request-Id");
}

// The headings of --help.
void group_options(CLI::App& command) {
  using Names = std::vector<const char*>;
  const std::vector<std::pair<const char*, Names>> groups = {
      {"Model",
       {"--model", "--revision", "--served-model-name", "--max-model-len", "--speculative-config",
        "--require-draft", "--tokenizer", "--default-chat-template-kwargs", "--generation-config",
        "--override-generation-config", "--trust-remote-code"}},
      {"Computing and memory",
       {"--backend", "--threads", "--max-num-seqs", "--max-num-batched-tokens", "--kv-cache-dtype",
        "--kv-cache-memory-bytes", "--gpu-memory-utilization", "--enable-prefix-caching",
        "--enable-chunked-prefill", "--enforce-eager", "--moe-backend", "--tensor-parallel-size"}},
      {"Answers",
       {"--enable-auto-tool-choice", "--tool-call-parser", "--reasoning-parser",
        "--enable-force-include-usage", "--strict-model-name", "--thinking-signatures",
        "--enable-prompt-tokens-details"}},
      {"Network",
       {"--host", "--port", "--uds", "--root-path", "--api-key", "--api-key-file",
        "--allowed-origins", "--allowed-methods", "--allowed-headers", "--allow-credentials",
        "--ssl-certfile", "--ssl-keyfile", "--ssl-ca-certs", "--ssl-cert-reqs"}},
      {"Limits",
       {"--max-body-bytes", "--max-response-store-bytes", "--max-connections", "--idle-timeout",
        "--read-timeout", "--receive-timeout", "--write-timeout", "--shutdown-timeout",
        "--stall-timeout"}},
      {"Log",
       {"--log-format", "--log-level", "--enable-log-requests", "--max-log-len",
        "--disable-log-stats", "--enable-request-id-headers"}},
      {"Measuring without a model",
       {"--load-format", "--dummy-seed", "--dummy-routing-overlap", "--synthetic-acceptance"}}};
  for (const auto& [group, names] : groups) {
    for (const char* name : names) command.get_option(name)->group(group);
  }
}

// vLLM writes lists of CORS as JSON: '["https://a.example"]'. Words are taken as they are.
Result<void> take_json_list(const char* option, std::vector<std::string>& list) {
  std::vector<std::string> taken;
  for (const std::string& text : list) {
    if (text.find_first_not_of(' ') == std::string::npos ||
        text[text.find_first_not_of(' ')] != '[') {
      taken.push_back(text);
      continue;
    }
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_array() ||
        !std::all_of(json.begin(), json.end(), [](const auto& item) { return item.is_string(); })) {
      return usage_error(
          fmt::format("{} takes words, or a JSON list of strings, and not '{}'", option, text));
    }
    for (const auto& item : json) taken.push_back(item.get<std::string>());
  }
  list = std::move(taken);
  return {};
}

Result<void> read_api_keys(const std::string& path, std::vector<std::string>& keys) {
  std::ifstream file(path);
  const size_t before = keys.size();
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) keys.push_back(line);
  }
  if (file.is_open() && !file.bad() && keys.size() > before) return {};
  return usage_error(fmt::format("--api-key-file {} {}", path,
                                 file.is_open() ? "has no keys, one a line" : "cannot be read"));
}

// What is accepted since scripts give it, and what of it cannot be had.
Result<void> finish_accepted(const CLI::App& command, const ServeTexts& texts,
                             ServeOptions& options) {
  if (texts.tensor_parallel_size > 1) {
    return usage_error(fmt::format(
        "--tensor-parallel-size {} is not supported: a model runs on one device in this version",
        texts.tensor_parallel_size));
  }
  if (!texts.chunked_prefill) {
    return usage_error(
        "--no-enable-chunked-prefill is not supported: long prompts are always computed in chunks, "
        "so that other requests are not held up");
  }
  if (!texts.auto_tool_choice) {
    return usage_error(
        "--no-enable-auto-tool-choice is not supported: a request without tools, or with "
        "tool_choice \"none\", has no tool calls");
  }
  if (texts.prefix_caching) {
    options.remarks.emplace_back(
        "--enable-prefix-caching has no effect yet: there is no prefix cache");
  }
  options.model.graphs = !texts.enforce_eager;
  if (!texts.moe_backend.empty()) {
    options.remarks.emplace_back(
        "--moe-backend has no effect: there is one way to compute experts");
  }
  if (texts.trust_remote_code) {
    options.remarks.emplace_back(
        "--trust-remote-code has no effect: no code of a model is ever run");
  }
  if (options.model.require_draft && options.model.speculative_config.empty()) {
    return usage_error(
        "--require-draft is about a draft, and there is none: add "
        "--speculative-config");
  }
  if (command.count("--max-log-len") > 0 && !options.log_requests) {
    return usage_error(
        "--max-log-len is for the bodies of requests: add --enable-log-requests or leave it out");
  }
  return {};
}

// What keep_lists_whole() of options.cpp put in front of a value that is no list.
void drop_blanks(std::vector<std::string>& values) {
  for (std::string& value : values) {
    if (value.starts_with(" [")) value.erase(0, 1);
  }
}

Result<void> finish_network(const CLI::App& command, const ServeTexts& texts,
                            ServeOptions& options) {
  drop_blanks(options.api_keys);
  drop_blanks(options.served_names);
  if (!texts.api_key_file.empty()) {
    LAGOON_RETURN_IF_ERROR(read_api_keys(texts.api_key_file, options.api_keys));
  }
  LAGOON_RETURN_IF_ERROR(take_json_list("--allowed-origins", options.allowed_origins));
  LAGOON_RETURN_IF_ERROR(take_json_list("--allowed-methods", options.allowed_methods));
  LAGOON_RETURN_IF_ERROR(take_json_list("--allowed-headers", options.allowed_headers));
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return usage_error("--ssl-certfile and --ssl-keyfile belong together: give both or neither");
  }
  const bool checks_clients = options.tls_client_certificates > 0;
  if (checks_clients != !options.tls_client_ca.empty() ||
      (checks_clients && options.tls_certificate.empty())) {
    return usage_error(
        "--ssl-cert-reqs 1 or 2 and --ssl-ca-certs belong together, and to --ssl-certfile");
  }
  if (!options.socket_path.empty() && command.count("--host") + command.count("--port") > 0) {
    return usage_error(
        "--uds listens on a Unix socket, in place of --host and --port: leave one "
        "of them out");
  }
  std::string& root = options.root_path;
  while (root.ends_with('/')) root.pop_back();
  if (!root.empty() && !root.starts_with('/')) {
    return usage_error(fmt::format("--root-path must begin with '/', and is '{}'", root));
  }
  return {};
}

}  // namespace

void add_serve_options(CLI::App& command, ServeOptions& options, ServeTexts& texts) {
  add(command, "--config", texts.config, "A TOML file with these options, without their dashes",
      "FILE")
      ->check(not_empty());
  add_model_parts(command, options, texts);
  add_computing(command, options, texts);
  add_answers(command, options, texts);
  add_network(command, options, texts);
  add_limits(command, options);
  add_log(command, options, texts);
  group_options(command);
  command.footer(
      "Each option can also be given in the environment (LAGOON_MAX_MODEL_LEN=16K) or in the file "
      "of --config;\nthe command line goes first, then the environment. Options that take JSON can "
      "be given by key:\n--speculative-config.num_speculative_tokens 6. docs/operating.md tells "
      "more.");
}

Result<void> finish_serve(const CLI::App& command, const ServeTexts& texts, ServeOptions& options) {
  LAGOON_RETURN_IF_ERROR(finish_memory(texts.memory, options.model));
  LAGOON_RETURN_IF_ERROR(finish_accepted(command, texts, options));
  LAGOON_RETURN_IF_ERROR(finish_network(command, texts, options));
  options.log_stats = !texts.no_log_stats;
  options.json_log = texts.log_format == "json";
  return {};
}

}  // namespace lagoon::app
