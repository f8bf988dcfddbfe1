#include "app/option_parts.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>

#include "app/plan_memory.h"

namespace lagoon::app {
namespace {

// Explains the columns of the table; docs/bench.md has the same at greater length.
constexpr const char* kBenchColumns = R"(Columns (each figure is the median over the repeats):
  k          proposals per step (num_speculative_tokens); 0: no draft is loaded; auto: chosen for
             each step, none to 7, by what steps take and how many proposals stand
  streams    requests at a time
  prompt     tokens of a prompt;  output  tokens of an answer
  tok/s      decode speed of one request: (output - 1) / (time of its last token - of its first)
  min..max   the same, of the slowest and the fastest request
  total      decode speed of all streams together
  TTFT       ms from sending a request to its first token
  prefill    prompt / TTFT, tokens per second
  accept     accepted drafts / drafted tokens, percent
  acc/step   accepted drafts per step that verified drafts
  step       ms between two events of a request, the median; a decode step
  of memory  bytes that such a step reads, over its time and the rate of memory
  tok/step   tokens emitted per such step: acc/step + 1, the one that the target adds itself
  experts    distinct experts that a sparse layer reads in a decode step / rows of that step
Below the table: acceptance by position, the share of steps in which the draft was accepted up to
there. With --url the last five come from the server's /metrics, where it has vLLM's counters.)";

Error usage_error(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

// "1,4,8" or ".88,.69", each from `lowest` to `highest`.
template <typename T>
Result<std::vector<T>> parse_list(std::string_view option, std::string_view text, T lowest,
                                  T highest) {
  std::vector<T> list;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    T value{};
    const auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    // A NaN lies between no bounds.
    if (error != std::errc() || rest != text.data() + end ||
        !(value >= lowest && value <= highest)) {
      return usage_error(
          fmt::format("{} must be numbers from {} to {} with commas between them, "
                      "not '{}'",
                      option, lowest, highest, text));
    }
    list.push_back(value);
    begin = end + 1;
  }
  return list;
}

constexpr int kMostProposals = 1024;

// The values of --k: numbers, and "auto".
Result<std::vector<int>> parse_proposals(std::string_view text) {
  std::vector<int> list;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view value = text.substr(begin, end - begin);
    if (value == "auto") {
      list.push_back(ModelOptions::kAdaptive);
    } else {
      const auto number = parse_list("--k", value, 0, kMostProposals);
      if (!number.ok()) {
        return usage_error(
            fmt::format("--k must be numbers from 0 to {}, or auto, with commas between them, not "
                        "'{}'",
                        kMostProposals, text));
      }
      list.push_back(number->front());
    }
    begin = end + 1;
  }
  return list;
}

// Insertions, deletions and replacements that turn one text into the other (Levenshtein).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  return *std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
}

std::string nearest_option(const CLI::App& command, const std::string& name) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
  }
  return nearest(name, known);
}

const CLI::Validator& not_empty() {
  static const CLI::Validator kValidator(
      [](const std::string& value) {
        return value.empty() ? std::string("an empty value means nothing; leave the option out")
                             : std::string();
      },
      "");
  return kValidator;
}

CLI::Validator within(double least, double most) {
  return {[=](const std::string& text) {
            double value = 0;
            const char* const end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, value);
            if (error == std::errc() && rest == end && value >= least && value <= most)
              return std::string();
            return fmt::format("must be a number from {} to {}, not '{}'", least, most, text);
          },
          ""};
}

const CLI::Validator& whole_number() {
  static const CLI::Validator kValidator(
      [](const std::string& text) {
        uint64_t value = 0;
        const char* const end = text.data() + text.size();
        const auto [rest, error] = std::from_chars(text.data(), end, value);
        const bool octal = text.size() > 1 && text[0] == '0';  // to the conversion
        if (error == std::errc() && rest == end && !octal) return std::string();
        return fmt::format("must be a whole number from 0 to {}, not '{}'",
                           std::numeric_limits<uint64_t>::max(), text);
      },
      "");
  return kValidator;
}

void add_memory_options(CLI::App& command, ModelOptions& options, MemoryTexts& texts) {
  add(command, "--max-num-seqs", options.slots, "Requests computed at a time; default: 4", "N")
      ->check(CLI::Range(1, 1024));
  add(command, "--max-num-batched-tokens", texts.max_batched_tokens,
      "Rows of a step at most, prompts' and answers' together", "N")
      ->check(not_empty());
  add(command, "--kv-cache-memory-bytes", texts.kv_cache_bytes,
      "Size of the pool of keys and values (12G); default: --max-num-seqs requests of full length, "
      "or what there is memory for",
      "BYTES")
      ->check(not_empty());
  add(command, "--gpu-memory-utilization", options.memory_utilization,
      "Share of the memory that the server may take; so much need not be free. Default: all but a "
      "reserve",
      "SHARE")
      ->check(within(0.01, 1));
}

Result<void> finish_memory(const MemoryTexts& texts, ModelOptions& options) {
  if (!texts.max_batched_tokens.empty()) {
    LAGOON_ASSIGN(const int64_t tokens,
                  parse_count("--max-num-batched-tokens", texts.max_batched_tokens));
    if (tokens > 1 << 20) {
      return usage_error(fmt::format(
          "--max-num-batched-tokens is {}, and a step has at most {} rows", tokens, 1 << 20));
    }
    options.max_batched_tokens = static_cast<int>(tokens);
  }
  if (!texts.kv_cache_bytes.empty()) {
    LAGOON_ASSIGN(options.kv_cache_bytes,
                  parse_count("--kv-cache-memory-bytes", texts.kv_cache_bytes));
  }
  return {};
}

void add_dummy_options(CLI::App& command, ModelOptions& options, ListTexts& lists) {
  add(command, "--dummy-seed", options.dummy_seed, "Seed of --load-format dummy; default: 0", "N")
      ->check(whole_number());
  add(command, "--dummy-routing-overlap", options.dummy_routing_overlap,
      "With --load-format dummy: the share of its experts that a row has in common with another "
      "(real text: about 0.2 of 10 of 256); default: as many as independent rows",
      "SHARE")
      ->check(within(0, 1));
  add(command, "--synthetic-acceptance", lists.synthetic_acceptance,
      "Draws how many drafts are accepted instead of comparing them: the probability that drafts "
      "1..i all are, for each i (.88,.69,.64,.59,.51,.39); the text means nothing",
      "RATE,...")
      ->check(not_empty());
}

void add_bench_options(CLI::App& command, BenchOptions& options, ListTexts& lists) {
  add(command, "--url", options.url,
      "Measure the OpenAI-compatible server at http://HOST:PORT instead of a MODEL", "URL")
      ->check(not_empty());
  add(command, "--served-model", options.served_model,
      "The model's name in requests to the server; default: the first that it lists", "NAME")
      ->check(not_empty());
  command.add_flag("--chat", options.chat,
                   "Send prompts as a user's message; default: raw completions");
  add(command, "--input-len", options.input_length, "Tokens of a prompt; default: 2048", "N")
      ->check(CLI::Range(8, 1 << 24));
  add(command, "--output-len", options.output_length, "Tokens of an answer; default: 256", "N")
      ->check(CLI::Range(2, 1 << 24));
  add(command, "--warmup", options.warmup, "Rounds that are not counted; default: 1", "N")
      ->check(CLI::Range(0, 1000));
  add(command, "--repeats", options.repeats, "Rounds that are counted; default: 3", "N")
      ->check(CLI::Range(1, 10000));
  add(command, "--streams", lists.streams, "Requests at a time, a measurement each; default: 1",
      "N,...")
      ->check(not_empty());
  add(command, "--k", lists.proposals,
      "Proposals per step, a measurement each, auto: as many as pay; default: "
      "num_speculative_tokens",
      "K,...")
      ->check(not_empty());
  add(command, "--temperature", options.temperature, "Default: 0, greedy", "T")
      ->check(within(0, 1e6));
  add(command, "--seed", options.seed, "Of the prompts and of sampling; default: 0", "N")
      ->check(whole_number());
  command.add_flag("--stop-at-eos", options.stop_at_eos,
                   "Let answers end early; default: every answer has --output-len tokens");
  command.add_flag("--random-context", options.random_context,
                   "With --load-format dummy: prompts count as computed, and keys and values are "
                   "random; for long contexts");
  command.add_flag(
      "--random-proposals", options.random_proposals,
      "Verify k random tokens a step in place of a draft's: the time of steps of k + 1 "
      "rows without a draft");
  add(command, "--json", options.json, "Write all figures to this file", "FILE")
      ->check(not_empty());
  add(command, "--timeout", options.timeout, "Seconds that a server may be silent; default: 600",
      "S")
      ->check(CLI::Range(1, 86400));
  command.footer(kBenchColumns);
}

void add_synth_options(CLI::App& command, SynthOptions& options) {
  add(command, "--config", options.config,
      "A config.json of a target or a draft, or a directory or bundled model that has one",
      "CONFIG")
      ->check(not_empty());
  add(command, "--out", options.out, "The directory to write, new or empty", "DIR")
      ->check(not_empty());
  add(command, "--layers", options.layers,
      "Target: its first N layers. Draft: for a target of N layers. Default: as the config says",
      "N")
      ->check(CLI::Range(1, 4096));
  add(command, "--seed", options.seed, "The same seed gives the same weights; default: 0", "N")
      ->check(whole_number());
  add(command, "--dummy-routing-overlap", options.routing_overlap,
      "As for --load-format dummy: the share of its experts that a row has in common with another",
      "SHARE")
      ->check(within(0, 1));
  add(command, "--tokenizer", options.tokenizer,
      "Directory or bundled model whose tokenizer is copied; default: the config's own", "DIR")
      ->check(not_empty());
  command.add_flag("--no-weights", options.no_weights,
                   "Write config and tokenizer only, for --load-format dummy");
}

Result<void> finish_synthetic_acceptance(const ListTexts& lists, ModelOptions& options) {
  if (lists.synthetic_acceptance.empty()) return {};
  LAGOON_ASSIGN(options.synthetic_acceptance,
                parse_list("--synthetic-acceptance", lists.synthetic_acceptance, 0.0, 1.0));
  const std::vector<double>& rates = options.synthetic_acceptance;
  if (options.speculative_config.empty()) {
    return usage_error(
        "--synthetic-acceptance acts on a draft, and there is none: add --speculative-config");
  }
  const auto rise = std::adjacent_find(rates.begin(), rates.end(),
                                       [](double rate, double next) { return next > rate; });
  if (rise != rates.end()) {
    return usage_error(fmt::format(
        "--synthetic-acceptance gives {:g} after {:g}; a rate is that of a draft and all before it "
        "being accepted, so it never rises",
        *(rise + 1), *rise));
  }
  return {};
}

Result<void> check_rows(const BenchOptions& options, int most) {
  const int streams = *std::ranges::max_element(options.streams);
  const int rows = rows_of_step(streams);
  if (most > 0 && streams * (most + 1) > rows) {
    return usage_error(fmt::format(
        "--k {} and --streams {} make steps of {} rows, and a step has at most {}: ask for less",
        most, streams, streams * (most + 1), rows));
  }
  const int least = 2 * (most + 2);  // the median step then has all of them
  if (options.random_proposals && options.output_length < least) {
    return usage_error(fmt::format(
        "--output-len is {}, and the last {} steps of an answer verify fewer than {} proposals: "
        "ask for {} tokens or more",
        options.output_length, most + 1, most, least));
  }
  return {};
}

Result<void> finish_bench_lists(const ListTexts& lists, BenchOptions& options) {
  if (!lists.streams.empty()) {
    LAGOON_ASSIGN(options.streams, parse_list("--streams", lists.streams, 1, 256));
  }
  if (!lists.proposals.empty()) {
    LAGOON_ASSIGN(options.proposals, parse_proposals(lists.proposals));
  }
  bool draft = !options.model.speculative_config.empty();
  if (options.random_proposals) {
    if (draft || !options.model.synthetic_acceptance.empty()) {
      return usage_error(
          "--random-proposals verifies random tokens in place of a draft's: leave "
          "--speculative-config and --synthetic-acceptance out");
    }
    if (std::ranges::all_of(options.proposals, [](int k) { return k == 0; })) {
      return usage_error("--random-proposals needs to know how many: add --k");
    }
    if (std::ranges::count(options.proposals, ModelOptions::kAdaptive) > 0) {
      return usage_error(
          "--random-proposals needs to know how many: give numbers in place of auto");
    }
    draft = true;
  }
  const auto& ks = options.proposals;
  if (!draft && std::any_of(ks.begin(), ks.end(), [](int k) { return k != 0; })) {
    return usage_error("--k asks for proposals, and there is no draft: add --speculative-config");
  }
  const size_t rates = options.model.synthetic_acceptance.size();
  if (rates > 0 && std::count(ks.begin(), ks.end(), ModelOptions::kAdaptive) > 0) {
    return usage_error(
        "--k auto chooses by what the target accepts, and --synthetic-acceptance replaces that: "
        "give numbers");
  }
  const int most = ks.empty() ? 0 : *std::max_element(ks.begin(), ks.end());
  LAGOON_RETURN_IF_ERROR(check_rows(options, most));
  if (rates > 0 && !ks.empty() && most == 0) {
    return usage_error("--synthetic-acceptance acts on drafts, and --k asks for none");
  }
  if (rates > 0 && static_cast<size_t>(most) > rates) {
    return usage_error(
        fmt::format("--synthetic-acceptance gives {} rates, and --k asks for {} "
                    "proposals: give a rate for each",
                    rates, most));
  }
  return {};
}

}  // namespace lagoon::app
