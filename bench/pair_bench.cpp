// Measures the bundled pair on a backend: prefill of a long prompt, and greedy decoding of the chat
// cases of tests/golden at several numbers of proposals and sequences. The best of the turns
// counts, since other programs take time away; where they take much, tokens per second of processor
// time say more.
//
//   pair_bench [--backend cpu|cuda|ref] [--threads N] [--turns N] [--tokens N] [--k K,...]
//              [--batch B,...] [--prefill N,...] [--fp8] [--steps N]
//
// The values of k are measured in turn. `auto`: as many proposals as the engine would choose;
// `none`: no draft is loaded, while for 0 its context is there.
// --steps N: nothing is measured; N steps of one sequence after a short prompt, of the first k, for
// a profiler.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/check.h"
#include "checkpoint/model_dir.h"
#include "engine/adaptive_proposals.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cuda/backend.h"
#include "kernels/ref/backend.h"
#include "model/laguna.h"

namespace lagoon::model {
namespace {

using Clock = std::chrono::steady_clock;

// Values of k that are no numbers.
constexpr int kAuto = -1;
constexpr int kNone = -2;
constexpr int kMostAuto = 7;

struct Options {
  std::string backend = "cpu";
  int threads = 2;
  int turns = 3;
  int tokens = 64;  // of an answer
  std::vector<int> k = {kNone, 0, 1, 2, 3, 4, 6, 8, 15, kAuto};
  std::vector<int> batch = {1, 4, 8};
  std::vector<int> prefill = {512, 2048};
  bool fp8 = false;
  int steps = 0;
};

std::string k_name(int k) {
  if (k == kAuto) return "auto";
  return k == kNone ? "none" : fmt::format("{}", k);
}

std::vector<int> parse_list(const std::string& name, const std::string& text) {
  std::vector<int> list;
  std::istringstream values(text);
  for (std::string value; std::getline(values, value, ',');) {
    if (name == "--k" && (value == "auto" || value == "none")) {
      list.push_back(value == "auto" ? kAuto : kNone);
      continue;
    }
    list.push_back(std::stoi(value));
    if (list.back() < (name == "--k" ? 0 : 1)) throw std::invalid_argument(name + " is too small");
  }
  if (list.empty()) throw std::invalid_argument(name + " lacks its value");
  return list;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--fp8") {
      options.fp8 = true;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(name + " is unknown or lacks its value");
    const std::string value = argv[++i];
    if (name == "--backend") {
      options.backend = value;
    } else if (name == "--threads") {
      options.threads = std::stoi(value);
    } else if (name == "--turns") {
      options.turns = std::stoi(value);
    } else if (name == "--tokens") {
      options.tokens = std::stoi(value);
    } else if (name == "--k") {
      options.k = parse_list(name, value);
    } else if (name == "--batch") {
      options.batch = parse_list(name, value);
    } else if (name == "--prefill") {
      options.prefill = parse_list(name, value);
    } else if (name == "--steps") {
      options.steps = std::stoi(value);
    } else {
      throw std::invalid_argument(name + " is unknown");
    }
  }
  return options;
}

constexpr int kSlots = 8;
constexpr int kRows = 512;
constexpr int kMaxLength = 4096;

std::vector<std::vector<int32_t>> chat_prompts() {
  std::ifstream file(LAGOON_SOURCE_DIR "/tests/golden/cases.json");
  std::vector<std::vector<int32_t>> prompts;
  for (const auto& item : nlohmann::json::parse(file)) {
    if (item["kind"] == "chat") prompts.push_back(item["ids"]);
  }
  CHECK(!prompts.empty());
  return prompts;
}

// Of all threads.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Sequence {
  int slot = 0;
  int32_t committed = 0;
  std::vector<int32_t> tokens;  // the newest is not computed
  std::vector<int32_t> pages;
  int k = 0;  // proposals of the next step
  engine::Drafting drafting = {};
  int answered = 0;    // tokens
  bool ended = false;  // with the model's end of an answer
};

// The pages of a slot.
Sequence make_sequence(const Model& model, int slot, const std::vector<int32_t>& prompt) {
  Sequence sequence{.slot = slot, .tokens = prompt, .pages = {}};
  const int pages = model.info().pages / model.info().slots;
  for (int i = 0; i < pages; ++i) sequence.pages.push_back(slot * pages + i);
  return sequence;
}

void prefill(Model& model, Sequence& sequence) {
  const auto end = static_cast<int32_t>(sequence.tokens.size());
  while (sequence.committed < end) {
    const int32_t rows = std::min<int32_t>(kRows, end - sequence.committed);
    Segment segment;
    segment.slot = sequence.slot;
    segment.position = sequence.committed;
    segment.tokens = std::span(sequence.tokens).subspan(sequence.committed, rows);
    segment.sample = sequence.committed + rows == end ? Sample::kLast : Sample::kNone;
    segment.page_table = sequence.pages;
    const auto result = model.step({{segment}});
    sequence.committed += rows;
    model.commit({{Commit{sequence.slot, sequence.committed}}});
    if (!result[0].sampled.empty()) sequence.tokens.push_back(result[0].sampled[0]);
  }
}

// Seconds of the parts of steps.
struct Phases {
  double draft = 0;
  double step = 0;
  double commit = 0;
};

// What chooses the sequences' k; null: they stay as they are.
using Chooser = engine::AdaptiveProposals;

void choose(Chooser& chooser, std::vector<Sequence>& sequences) {
  std::vector<engine::Drafting*> requests;
  requests.reserve(sequences.size());
  for (Sequence& s : sequences) requests.push_back(&s.drafting);
  chooser.choose(requests, {}, kRows);
  for (Sequence& s : sequences) s.k = s.drafting.proposals();
}

// A step of all sequences; the number of tokens it gave. tools/check_instructions.py looks for it.
__attribute__((noinline)) int decode_step(Model& model, std::vector<Sequence>& sequences,
                                          Chooser* chooser, Phases& phases) {
  const auto start = Clock::now();
  if (chooser != nullptr) choose(*chooser, sequences);
  std::vector<Anchor> anchors;
  std::vector<Segment> segments;
  int most = 0;
  engine::AdaptiveProposals::Times times;
  for (const Sequence& s : sequences) {
    if (s.k > 0) anchors.push_back({s.slot, s.tokens.back(), s.committed});
    most = std::max(most, s.k);
    times.target_rows += 1 + s.k;
    Segment segment;
    segment.slot = s.slot;
    segment.position = s.committed;
    segment.tokens = std::span(s.tokens).last(1);
    segment.proposals = s.k;
    segment.row_class = RowClass::kGenerated;
    segment.sample = Sample::kAll;
    segment.page_table = s.pages;
    segments.push_back(segment);
  }
  const auto planned = Clock::now();
  if (most > 0) model.draft(anchors, most);
  times.draft_rows = static_cast<int>(anchors.size()) * (most + 1);
  times.draft_seconds = seconds_since(planned);
  const auto drafted = Clock::now();
  const auto results = model.step(segments);
  phases.draft += times.draft_seconds;
  phases.step += seconds_since(drafted);
  int tokens = 0;
  std::vector<Commit> commits;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SegmentResult& result = results[i];
    size_t accepted = 0;
    while (accepted < static_cast<size_t>(sequences[i].k) &&
           result.tokens[accepted + 1] == result.sampled[accepted]) {
      ++accepted;
    }
    const auto count = static_cast<int>(accepted) + 1;
    if (chooser != nullptr) {
      chooser->observe(&sequences[i].drafting, sequences[i].k, static_cast<int>(accepted));
    }
    const auto end = result.sampled.begin() + count;
    const auto eos = std::find_if(result.sampled.begin(), end, [&](int32_t token) {
      return std::ranges::count(model.info().eos, token) > 0;
    });
    // What follows an end is no answer: it is computed, and not counted.
    const auto counted = static_cast<int>(eos - result.sampled.begin()) + (eos != end ? 1 : 0);
    sequences[i].ended = eos != end;
    sequences[i].answered += counted;
    tokens += counted;
    sequences[i].committed += count;
    sequences[i].tokens.insert(sequences[i].tokens.end(), result.sampled.begin(),
                               result.sampled.begin() + count);
    commits.push_back({sequences[i].slot, sequences[i].committed});
  }
  const auto computed = Clock::now();
  model.commit(commits);
  phases.commit += seconds_since(computed);
  times.target_seconds = seconds_since(start) - times.draft_seconds;
  if (chooser != nullptr) chooser->measure(times);
  return tokens;
}

struct Figures {
  double seconds = 0;
  double processor_seconds = 0;
  int tokens = 0;
  int steps = 0;
  int rows = 0;  // sequences in steps
  Phases phases;
};

// Answers to all prompts up to their end, or about `tokens` tokens of each, `batch` at a time.
Figures answer_all(Model& model, const std::vector<std::vector<int32_t>>& prompts, int batch, int k,
                   int tokens, Chooser* chooser) {
  Figures figures;
  for (size_t first = 0; first + batch <= std::max(prompts.size(), size_t(batch)); first += batch) {
    std::vector<Sequence> sequences;
    for (int i = 0; i < batch; ++i) {
      sequences.push_back(make_sequence(model, i, prompts[(first + i) % prompts.size()]));
      sequences.back().k = std::max(k, 0);
      prefill(model, sequences.back());
    }
    const auto start = Clock::now();
    const double processor = processor_seconds();
    while (!sequences.empty()) {
      figures.tokens += decode_step(model, sequences, chooser, figures.phases);
      ++figures.steps;
      figures.rows += static_cast<int>(sequences.size());
      std::erase_if(sequences, [&](const Sequence& s) { return s.ended || s.answered >= tokens; });
    }
    figures.seconds += seconds_since(start);
    figures.processor_seconds += processor_seconds() - processor;
  }
  return figures;
}

void print_figures(int batch, int k, const Figures& best, double processor_seconds) {
  fmt::print(
      "batch {} k {:>4}: {:7.0f} tok/s, {:7.0f} a processor second, {:6.3f} ms a step "
      "(draft {:.3f}, target {:.3f}, commit {:.3f}), {:.2f} tokens a step\n",
      batch, k_name(k), best.tokens / best.seconds, best.tokens / processor_seconds,
      1e3 * best.seconds / best.steps, 1e3 * best.phases.draft / best.steps,
      1e3 * best.phases.step / best.steps, 1e3 * best.phases.commit / best.steps,
      static_cast<double>(best.tokens) / best.rows);
}

void measure_batch(Model& model, Model* plain, const Options& options,
                   const std::vector<std::vector<int32_t>>& prompts, int batch) {
  std::vector<Figures> best(options.k.size());
  std::vector<double> processor(options.k.size());
  Chooser chooser(kMostAuto);
  for (int turn = 0; turn < options.turns; ++turn) {
    for (size_t i = 0; i < options.k.size(); ++i) {
      const int k = options.k[i];
      const Figures figures = answer_all(k == kNone ? *plain : model, prompts, batch, k,
                                         options.tokens, k == kAuto ? &chooser : nullptr);
      if (turn == 0 || figures.processor_seconds < processor[i]) {
        processor[i] = figures.processor_seconds;
      }
      if (turn == 0 || figures.seconds < best[i].seconds) best[i] = figures;
    }
  }
  for (size_t i = 0; i < best.size(); ++i) {
    print_figures(batch, options.k[i], best[i], processor[i]);
  }
}

// `plain`: without a draft, where that is asked for.
void measure(Model& model, Model* plain, const Options& options) {
  const auto prompts = chat_prompts();
  for (const int length : options.prefill) {
    std::vector<int32_t> prompt;
    while (static_cast<int>(prompt.size()) < length) {
      const auto& more = prompts[prompt.size() % prompts.size()];
      prompt.insert(prompt.end(), more.begin(), more.end());
    }
    prompt.resize(static_cast<size_t>(length));
    double best = 1e9;
    double best_processor = 1e9;
    for (int turn = 0; turn < options.turns; ++turn) {
      Sequence sequence = make_sequence(model, 0, prompt);
      const auto start = Clock::now();
      const double processor = processor_seconds();
      prefill(model, sequence);
      best = std::min(best, seconds_since(start));
      best_processor = std::min(best_processor, processor_seconds() - processor);
    }
    fmt::print("prefill {:5} tokens: {:7.0f} tok/s, {:7.0f} a processor second\n", length,
               length / best, length / best_processor);
  }
  for (const int batch : options.batch) measure_batch(model, plain, options, prompts, batch);
}

void run_steps(Model& model, int k, int steps) {
  std::vector<Sequence> sequences = {make_sequence(model, 0, chat_prompts()[0])};
  prefill(model, sequences[0]);
  sequences[0].k = std::max(k, 0);
  Chooser chooser(kMostAuto);
  Phases phases;
  for (int i = 0; i < steps; ++i) {
    decode_step(model, sequences, k == kAuto ? &chooser : nullptr, phases);
  }
}

int run(const Options& options) {
  if (options.backend == "cpu") {
    const auto selected = kernels::cpu::select_from_environment();
    if (!selected.ok()) {
      fmt::print(stderr, "{}\n", selected.error().message);
      return 1;
    }
  }
  const auto activations = kernels::Activations::kBFloat16;
  const auto backend =
      options.backend == "ref"    ? kernels::ref::make_backend(activations, options.threads)
      : options.backend == "cuda" ? kernels::cuda::make_backend(activations).value()
                                  : kernels::cpu::make_backend(activations, options.threads);
  const std::string models = LAGOON_SOURCE_DIR "/models/";
  const auto target = checkpoint::ModelDir::open(models + "laguna-nano-nvfp4").value();
  const auto draft = checkpoint::ModelDir::open(models + "laguna-nano-dflash-nvfp4").value();
  LoadOptions load_options;
  load_options.slots = kSlots;
  load_options.max_rows = kRows;
  load_options.max_length = kMaxLength;
  if (options.fp8) load_options.cache_type = kernels::CacheType::kFP8;
  const auto model = load(target, &draft, *backend, load_options).value();
  const bool without = std::ranges::count(options.k, kNone) > 0;
  const auto plain =
      without ? load(target, nullptr, *backend, load_options).value() : std::unique_ptr<Model>();
  if (options.steps > 0) {
    run_steps(options.k[0] == kNone ? *plain : *model, options.k[0], options.steps);
    return 0;
  }
  fmt::print("backend {}, {} threads\n", backend->name(), options.threads);
  measure(*model, plain.get(), options);
  return 0;
}

}  // namespace
}  // namespace lagoon::model

int main(int argc, char** argv) {
  try {
    return lagoon::model::run(lagoon::model::parse(argc, argv));
  } catch (const std::exception& error) {  // a number that is none
    std::fprintf(stderr, "pair_bench: %s\n", error.what());
    return 1;
  }
}
