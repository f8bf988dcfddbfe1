#include "bench/engine_subject.h"

#include <fmt/core.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "bench/code_text.h"
#include "bench/prompt_text.h"
#include "text/jinja/value.h"

namespace lagoon::bench {
namespace {

// What the engine's thread tells the one that asked.
struct Outcome {
  std::mutex mutex;
  std::condition_variable ended;
  Answer answer;
  bool has_first = false;
  std::optional<double> waited_first;
  bool done = false;
  engine::FinishReason reason = engine::FinishReason::kStop;
  std::string error;

  // `waited`: Backend::waited_seconds() now.
  void take(const engine::Event& event, std::optional<double> waited) {
    const Clock::time_point now = Clock::now();
    const std::lock_guard lock(mutex);
    if (!event.pieces.empty()) {
      if (!has_first) {
        answer.first = now;
        waited_first = waited;
      }
      has_first = true;
      answer.last = now;
      if (waited) answer.waited = *waited - *waited_first;
      answer.steps.push_back(now);
    }
    if (!event.finished) return;
    answer.prompt_tokens = event.usage.prompt_tokens;
    answer.completion_tokens = event.usage.completion_tokens;
    reason = event.reason;
    error = event.error;
    done = true;
    ended.notify_one();
  }
};

class EngineSubject : public Subject {
 public:
  EngineSubject(engine::Engine& engine, const text::Tokenizer& tokenizer,
                const text::ChatTemplate& chat_template, const MetricsRegistry& metrics,
                const kernels::Backend& backend)
      : engine_(engine),
        tokenizer_(tokenizer),
        chat_template_(chat_template),
        metrics_(metrics),
        backend_(backend) {}

  Result<Prompt> make_prompt(const RequestShape& shape, uint64_t seed) override {
    const auto length = static_cast<size_t>(shape.input_length);
    Prompt prompt;
    prompt.seed = seed;
    size_t bytes = length * kBytesPerToken;
    // A tokenizer whose tokens are longer on average needs more text.
    while (true) {
      const std::string code = make_code(seed, bytes);
      LAGOON_ASSIGN(prompt.tokens, encode(shape, code));
      if (prompt.tokens.size() >= length) break;
      bytes *= 2;
    }
    if (!shape.chat) {
      prompt.tokens.resize(length);
      return prompt;
    }
    return cut_chat(shape, seed, bytes);
  }

  Result<Answer> ask(const RequestShape& shape, const Prompt& prompt) override {
    engine::Request request;
    request.id = "bench";
    request.prompt = prompt.tokens;
    request.sampling.temperature = static_cast<float>(shape.temperature);
    request.sampling.seed = prompt.seed;
    request.max_tokens = shape.output_length;
    request.ignore_eos = !shape.stop_at_eos;
    request.proposals = std::max(shape.proposals, -1);  // else the engine's
    if (shape.random_context) request.computed = static_cast<int>(prompt.tokens.size()) - 1;
    const auto outcome = std::make_shared<Outcome>();
    const Clock::time_point sent = Clock::now();
    const auto submitted = engine_.submit(
        std::move(request), [outcome, &backend = backend_](const engine::Event& event) {
          outcome->take(event, backend.waited_seconds());
        });
    if (!submitted.ok()) return submitted.error();
    std::unique_lock lock(outcome->mutex);
    outcome->ended.wait(lock, [&] { return outcome->done; });
    outcome->answer.sent = sent;
    if (outcome->reason == engine::FinishReason::kError) {
      return Error{ErrorCode::kInternal, outcome->error};
    }
    if (outcome->reason == engine::FinishReason::kAborted) {
      return Error{ErrorCode::kCancelled, "the engine was stopped"};
    }
    return outcome->answer;
  }

  Result<std::optional<Counts>> counts() override {
    return std::optional<Counts>(parse_counts(metrics_.render()));
  }

 private:
  Result<std::vector<int32_t>> encode(const RequestShape& shape, const std::string& code) const {
    if (!shape.chat) {
      auto tokens = tokenizer_.encode(code);
      if (const int32_t bos = engine_.model_info().bos; bos >= 0)
        tokens.insert(tokens.begin(), bos);
      return tokens;
    }
    text::jinja::Dict message;
    message.set("role", "user");
    message.set("content", chat_request(code));
    text::jinja::Dict kwargs;
    kwargs.set("enable_thinking", false);
    LAGOON_ASSIGN(const std::string text,
                  chat_template_.render(text::jinja::List{std::move(message)}, text::jinja::Null{},
                                        kwargs, true));
    return tokenizer_.encode(text);
  }

  // The longest beginning of the code with which the message has at most the tokens asked for.
  Result<Prompt> cut_chat(const RequestShape& shape, uint64_t seed, size_t bytes) const {
    const std::string code = make_code(seed, bytes);
    Prompt prompt;
    prompt.seed = seed;
    size_t low = 0;
    size_t high = code.size();
    while (low < high) {
      const size_t middle = (low + high + 1) / 2;
      LAGOON_ASSIGN(const auto tokens, encode(shape, code.substr(0, middle)));
      if (tokens.size() <= static_cast<size_t>(shape.input_length)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    LAGOON_ASSIGN(prompt.tokens, encode(shape, code.substr(0, low)));
    if (prompt.tokens.size() > static_cast<size_t>(shape.input_length)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("--input-len is {}, and a chat without any code has {} tokens "
                               "already: ask for more",
                               shape.input_length, prompt.tokens.size())};
    }
    return prompt;
  }

  engine::Engine& engine_;
  const text::Tokenizer& tokenizer_;
  const text::ChatTemplate& chat_template_;
  const MetricsRegistry& metrics_;
  const kernels::Backend& backend_;
};

}  // namespace

std::unique_ptr<Subject> make_engine_subject(engine::Engine& engine,
                                             const text::Tokenizer& tokenizer,
                                             const text::ChatTemplate& chat_template,
                                             const MetricsRegistry& metrics,
                                             const kernels::Backend& backend) {
  return std::make_unique<EngineSubject>(engine, tokenizer, chat_template, metrics, backend);
}

}  // namespace lagoon::bench
