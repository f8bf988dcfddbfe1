#include "app/generate.h"

#include <fmt/core.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <utility>

#include "app/load.h"

namespace lagoon::app {
namespace {

using Clock = std::chrono::steady_clock;

// Carries events from the engine's thread, which must not wait for a terminal, to ours.
class EventQueue {
 public:
  void push(engine::Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    ready_.notify_one();
  }
  engine::Event pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !events_.empty(); });
    engine::Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<engine::Event> events_;
};

Result<std::vector<int32_t>> make_prompt(const GenerateOptions& options, const LoadedModel& model) {
  if (options.raw) {
    auto prompt = model.tokenizer->encode(options.prompt);
    model.tokenizer->add_prefix(prompt);
    return prompt;
  }
  text::jinja::Dict message;
  message.set("role", "user");
  message.set("content", options.prompt);
  text::jinja::Dict kwargs;
  kwargs.set("enable_thinking", options.thinking);
  LAGOON_ASSIGN(const std::string text,
                model.chat_template->render(text::jinja::List{std::move(message)},
                                            text::jinja::Null{}, kwargs, true));
  return model.tokenizer->encode(text);
}

kernels::Sampling make_sampling(const GenerateOptions& options, kernels::Sampling sampling) {
  if (options.temperature) sampling.temperature = static_cast<float>(*options.temperature);
  if (options.top_p) sampling.top_p = static_cast<float>(*options.top_p);
  if (options.top_k) sampling.top_k = std::max(*options.top_k, 0);
  std::random_device device;
  sampling.seed =
      options.seed ? static_cast<uint64_t>(*options.seed) : (uint64_t{device()} << 32 | device());
  return sampling;
}

std::string statistics(const engine::Usage& usage, int first_tokens, double seconds) {
  std::string text = fmt::format(
      "{} tokens, {:.2f} tokens per step", usage.completion_tokens,
      usage.steps > 0 ? static_cast<double>(usage.completion_tokens) / usage.steps : 0.0);
  if (usage.drafted_tokens > 0) {
    text += fmt::format(", {} of {} drafted tokens accepted", usage.accepted_tokens,
                        usage.drafted_tokens);
  } else {
    text += ", no drafts";
  }
  // The first step's tokens wait for the prompt; the speed is that of those after them.
  const int later = usage.completion_tokens - first_tokens;
  if (later > 0 && seconds > 0) text += fmt::format(", {:.1f} tok/s", later / seconds);
  return text;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// `synthetic`: LoadedModel::synthetic.
Result<void> follow(EventQueue& events, const std::string& synthetic) {
  std::optional<Clock::time_point> first;
  int first_tokens = 0;
  while (true) {
    const engine::Event event = events.pop();
    if (!first) {
      first = Clock::now();
      first_tokens = event.usage.completion_tokens;
    }
    std::string text;
    for (const engine::Piece& piece : event.pieces) text += piece.text;
    print(text + event.tail);
    if (!event.finished) continue;
    print("\n");
    if (event.reason == engine::FinishReason::kError) {
      return Error{ErrorCode::kInternal, event.error};
    }
    const std::chrono::duration<double> seconds = Clock::now() - *first;
    fmt::print(stderr, "{}{}\n", statistics(event.usage, first_tokens, seconds.count()),
               synthetic.empty() ? "" : fmt::format(" ({})", synthetic));
    return {};
  }
}

}  // namespace

Result<void> generate(const GenerateOptions& options) {
  FILE* nowhere = std::fopen("/dev/null", "w");
  if (nowhere == nullptr) return Error{ErrorCode::kInternal, "/dev/null cannot be opened"};
  auto loaded = load_model(options.model, {.lines = nowhere, .progress_lines = stderr});
  std::fclose(nowhere);
  if (!loaded.ok()) return loaded.error();
  const LoadedModel& model = **loaded;

  engine::Request request;
  request.id = "generate";
  LAGOON_ASSIGN(request.prompt, make_prompt(options, model));
  request.sampling = make_sampling(options, model.default_sampling);
  const int64_t room = model.engine->max_length() - static_cast<int64_t>(request.prompt.size());
  request.max_tokens = options.max_tokens > 0 ? options.max_tokens : static_cast<int>(room);
  if (room < 1 || request.max_tokens > room) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the prompt of {} tokens and {} tokens of answer do not fit the "
                             "context of {} tokens; shorten the prompt or lower --max-tokens",
                             request.prompt.size(), std::max(request.max_tokens, 1),
                             model.engine->max_length())};
  }
  EventQueue events;
  const auto submitted = model.engine->submit(
      std::move(request), [&events](engine::Event event) { events.push(std::move(event)); });
  if (!submitted.ok()) return submitted.error();
  return follow(events, model.synthetic);
}

}  // namespace lagoon::app
