#include "engine/self_test.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "engine/speculate.h"

namespace lagoon::engine {
namespace {

constexpr int kEnoughDrafts = 64;  // where acceptance is beyond doubt
constexpr double kBeyondDoubt = 0.25;
constexpr int kPlainSteps = 8;       // that are timed without drafts
constexpr int kPromptDrafts = 48;    // drafted tokens of one prompt, then comes the next
constexpr size_t kMostPrompt = 512;  // tokens
constexpr size_t kRounds = 8;        // each begins with less of the prompts

// What people have an editor complete.
constexpr std::string_view kPrograms[] = {
    "import csv\n\n\ndef parse_csv(path):\n    \"\"\"Read a CSV file and return a list of "
    "dictionaries.\"\"\"\n    rows = []\n    with open(path, newline=\"\") as f:\n        reader = "
    "csv.DictReader(f)\n        for row in reader:\n            rows.append(row)\n    return "
    "rows\n\n\ndef write_csv(path, rows):\n",
    "import os\nimport sys\n\n\ndef list_files(directory):\n    files = []\n    for name in "
    "os.listdir(directory):\n        path = os.path.join(directory, name)\n        if "
    "os.path.isfile(path):\n            files.append(path)\n    return files\n\n\ndef main():\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n "
    "   "
    "    self.items.append(item)\n\n    def pop(self):\n        if not self.items:\n            "
    "raise IndexError(\"pop from an empty stack\")\n        return self.items.pop()\n\n    def "
    "peek(self):\n",
    "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    "
    "return "
    "a\n\n\ndef factorial(n):\n    result = 1\n    for i in range(2, n + 1):\n        result *= "
    "i\n    "
    "return result\n\n\ndef is_prime(n):\n"};

// One sequence in slot 0, over the model's first pages.
class Continuation {
 public:
  Continuation(model::Model& model, int64_t max_length) : model_(model) {
    pages_.resize(static_cast<size_t>(model.info().pages));
    std::iota(pages_.begin(), pages_.end(), 0);
    const model::ModelInfo& info = model.info();
    room_ = std::min(max_length, int64_t{info.pages} * info.page_tokens);
  }

  // Positions that the model has for a sequence.
  int64_t room() const { return room_; }
  int64_t length() const { return committed_ + 1; }

  void begin(std::span<const int32_t> prompt) {
    committed_ = 0;
    const auto most = static_cast<size_t>(model_.info().max_rows);
    for (size_t at = 0; at < prompt.size(); at += most) {
      const auto chunk = prompt.subspan(at, std::min(most, prompt.size() - at));
      const bool last = at + chunk.size() == prompt.size();
      const auto result = step(chunk, 0, last ? model::Sample::kLast : model::Sample::kNone);
      if (last) newest_ = result.sampled.back();
      commit(static_cast<int32_t>(chunk.size()));
    }
  }

  void advance() {
    const auto result = step({&newest_, 1}, 0, model::Sample::kAll);
    newest_ = result.sampled.back();
    commit(1);
  }

  // The number of proposals that stand.
  int advance_with(int k) {
    const model::Anchor anchor{.slot = 0, .token = newest_, .position = committed_};
    model_.draft({&anchor, 1}, k);
    const auto result = step({&newest_, 1}, k, model::Sample::kAll);
    const int accepted = count_accepted(result.tokens, result.sampled);
    newest_ = result.sampled[static_cast<size_t>(accepted)];
    commit(accepted + 1);
    return accepted;
  }

  bool ended() const {
    return std::ranges::find(model_.info().eos, newest_) != model_.info().eos.end();
  }

 private:
  model::SegmentResult step(std::span<const int32_t> tokens, int proposals, model::Sample sample) {
    model::Segment segment;
    segment.position = committed_;
    segment.tokens = tokens;
    segment.proposals = proposals;
    segment.sample = sample;
    segment.row_class = tokens.size() > 1 ? model::RowClass::kPrompt : model::RowClass::kGenerated;
    segment.page_table = pages_;
    auto results = model_.step({&segment, 1});
    CHECK(results.size() == 1);
    return std::move(results.front());
  }

  void commit(int32_t positions) {
    committed_ += positions;
    const model::Commit commit{.slot = 0, .length = committed_};
    model_.commit({&commit, 1});
  }

  model::Model& model_;
  std::vector<int32_t> pages_;
  int64_t room_ = 0;
  int32_t committed_ = 0;
  int32_t newest_ = 0;
};

double seconds_since(Clock::time_point begin, const Now& now) {
  return std::chrono::duration<double>(now() - begin).count();
}

// Seconds of a token without drafts.
double time_plain(Continuation& text, const Now& now) {
  text.advance();  // the first one takes memory
  const Clock::time_point begin = now();
  int steps = 0;
  for (; steps < kPlainSteps && text.length() + 1 < text.room(); ++steps) text.advance();
  return steps == 0 ? 0 : seconds_since(begin, now) / steps;
}

bool decided(const SelfTest& test) {
  return test.drafted >= kSelfTestDrafts ||
         (test.drafted >= kEnoughDrafts && test.acceptance() >= kBeyondDoubt);
}

}  // namespace

double SelfTest::acceptance() const {
  return drafted == 0 ? 0 : static_cast<double>(accepted) / drafted;
}

double SelfTest::tokens_per_step() const {
  return steps == 0 ? 0 : 1 + static_cast<double>(accepted) / steps;
}

double SelfTest::gain() const {
  return draft_seconds <= 0 ? 0 : plain_seconds / draft_seconds;
}

std::string describe(const SelfTest& test) {
  if (test.drafted == 0) return "not tried: the context or a step is too short for a draft";
  return fmt::format(
      "{} of {} drafts accepted ({:.1f} %), {:.2f} tokens per step, {:.2f} times the speed without",
      test.accepted, test.drafted, 100 * test.acceptance(), test.tokens_per_step(), test.gain());
}

std::vector<std::vector<int32_t>> self_test_prompts(const text::Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> prompts;
  for (const std::string_view program : kPrograms) {
    prompts.push_back(tokenizer.encode(program));
    tokenizer.add_prefix(prompts.back());
    prompts.back().resize(std::min(prompts.back().size(), kMostPrompt));
  }
  return prompts;
}

Result<SelfTest> test_draft(model::Model& model, std::span<const std::vector<int32_t>> prompts,
                            int k, int64_t max_length, const Now& now,
                            const std::function<void(double)>& told) {
  CHECK(k >= 1 && k <= model.info().max_proposals && max_length <= model.info().max_positions);
  SelfTest test;
  k = std::min(k, model.info().max_rows - 1);  // beside the row of the newest token
  if (k == 0) return test;
  Continuation text(model, max_length);
  double seconds = 0;
  int tokens = 0;
  for (size_t i = 0; i < kRounds * prompts.size() && !decided(test); ++i) {
    std::span<const int32_t> prompt = prompts[i % prompts.size()];
    prompt = prompt.first(prompt.size() - i / prompts.size() * prompt.size() / (kRounds + 1));
    // A short context: what it holds of the prompt, and some steps.
    const int64_t most = text.room() - int64_t{8} * (k + 1);
    if (most < 1) break;
    prompt = prompt.first(std::min(prompt.size(), static_cast<size_t>(most)));
    if (prompt.empty()) continue;
    text.begin(prompt);
    if (test.plain_seconds == 0) test.plain_seconds = time_plain(text, now);
    for (int drafted = 0; drafted < kPromptDrafts && !decided(test); drafted += k) {
      if (text.ended() || text.length() + k + 1 > text.room() || model.failure() != nullptr) break;
      const Clock::time_point begin = now();
      const int accepted = text.advance_with(k);
      // The first step with drafts takes memory.
      if (test.steps++ > 0) {
        seconds += seconds_since(begin, now);
        tokens += accepted + 1;
      }
      test.drafted += k;
      test.accepted += accepted;
      if (told) told(std::min(1.0, static_cast<double>(test.drafted) / kSelfTestDrafts));
    }
    if (const Error* failure = model.failure()) return *failure;
  }
  if (tokens > 0) test.draft_seconds = seconds / tokens;
  return test;
}

}  // namespace lagoon::engine
