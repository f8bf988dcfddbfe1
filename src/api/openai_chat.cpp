// POST /v1/chat/completions.
#include <fmt/core.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/answer_parts.h"
#include "api/chat_request.h"
#include "api/context.h"
#include "api/json.h"
#include "api/logprobs.h"
#include "api/response_text.h"
#include "net/sse.h"

namespace lagoon::api {
namespace {

using text::parse::Event;

// What the answer's form depends on.
struct ChatForm {
  ResponseIdentity identity;
  const text::Tokenizer* tokenizer = nullptr;
  std::vector<int32_t> stop_tokens;
  bool include_reasoning = true;
  bool include_usage = false;
  bool continuous_usage = false;
  bool include_stop = false;
  bool skip_special_tokens = true;
  bool logprobs = false;
  int prompt_logprobs = -1;
  int prompt_tokens = 0;
};

std::string new_call_id() {
  return fmt::format("chatcmpl-tool-{:016x}", random_seed());
}

// Under both names that clients read.
std::string reasoning_json(const std::string& reasoning) {
  const std::string json = json_string(reasoning);
  return "\"reasoning\":" + json + ",\"reasoning_content\":" + json;
}

struct Call {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text

  // Its fields, without braces.
  std::string json() const {
    return fmt::format(R"("id":"{}","type":"function","function":{{"name":{},"arguments":{}}})", id,
                       json_string(name), json_string(arguments));
  }
};

// One choice of the answer.
struct ChatChoice {
  explicit ChatChoice(AnswerParts made) : parts(std::move(made)) {}

  AnswerParts parts;
  std::string logprobs;  // entries, of tokens whose probabilities no chunk has told yet
  // The whole answer:
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
  std::string finish;  // fields

  void take(const Event& part) {
    switch (part.kind) {
      case Event::Kind::kReasoning:
        reasoning += part.text;
        break;
      case Event::Kind::kContent:
        content += part.text;
        break;
      case Event::Kind::kCallBegin:
        calls.push_back({new_call_id(), part.text, ""});
        break;
      case Event::Kind::kArguments:
        calls.back().arguments += part.text;
        break;
      case Event::Kind::kCallEnd:
        break;
    }
  }
};

class ChatAnswer : public Answer {
 public:
  ChatAnswer(ChatForm form, std::vector<ChatChoice> choices)
      : form_(std::move(form)),
        head_(response_head(form_.identity, "chat.completion.chunk")),
        choices_(std::move(choices)) {}

  std::string stream_begin() override {
    std::string text;
    engine::Usage usage;
    usage.prompt_tokens = form_.prompt_tokens;
    for (size_t i = 0; i < choices_.size(); ++i) {
      text += chunk(i, R"("role":"assistant","content":"")", "", usage);
    }
    return text;
  }

  std::string stream_event(size_t choice, const engine::Event& event) override {
    std::string text;
    for (const Event& part : take_apart(choice, event)) {
      const std::string delta = delta_of(part);
      if (!delta.empty()) text += chunk(choice, delta, "", event.usage);
    }
    if (event.finished) text += chunk(choice, "", finish(choice, event), event.usage);
    return text;
  }

  std::string stream_end(const engine::Usage& total) override {
    if (!form_.include_usage) return net::sse_done();
    return net::sse_event(
               head_ + ",\"choices\":[],\"usage\":" + usage_json(total, reasoning_tokens()) + "}") +
           net::sse_done();
  }

  void add(size_t choice, const engine::Event& event) override {
    for (const Event& part : take_apart(choice, event)) choices_[choice].take(part);
    if (event.finished) choices_[choice].finish = finish(choice, event);
  }

  std::string body(const engine::Usage& total) override {
    std::string text = response_head(form_.identity, "chat.completion") + ",\"choices\":[";
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (i > 0) text += ',';
      text += fmt::format(R"({{"index":{},"message":{},"logprobs":{},{}}})", i,
                          message_json(choices_[i]), take_logprobs(i), choices_[i].finish);
    }
    text += "],\"usage\":" + usage_json(total, reasoning_tokens());
    if (form_.prompt_logprobs >= 0) text += ",\"prompt_logprobs\":" + prompt_logprobs_;
    return text + "}";
  }

 private:
  std::string message_json(const ChatChoice& choice) const {
    std::string text = R"({"role":"assistant","content":)";
    // A call alone is a whole answer. So is reasoning: the budget ended in it, or it was never
    // closed.
    if (choice.content.empty() && !(choice.reasoning.empty() && choice.calls.empty())) {
      text += "null";
    } else {
      append_json_string(text, choice.content);
    }
    text += R"(,"refusal":null)";
    if (!choice.reasoning.empty() && form_.include_reasoning) {
      text += ',' + reasoning_json(choice.reasoning);
    }
    if (!choice.calls.empty()) {
      text += ",\"tool_calls\":";
      for (size_t i = 0; i < choice.calls.size(); ++i) {
        text.append(i == 0 ? "[{" : ",{").append(choice.calls[i].json()).append("}");
      }
      text += ']';
    }
    return text + "}";
  }

  // The parts of the answer that an event brings and the client is to see.
  std::vector<Event> take_apart(size_t index, const engine::Event& event) {
    ChatChoice& choice = choices_[index];
    for (const engine::Piece& piece : event.pieces) {
      if (!form_.logprobs || !piece.logprob) continue;
      if (!choice.logprobs.empty()) choice.logprobs += ',';
      choice.logprobs += chat_logprob_json(*form_.tokenizer, *piece.logprob, piece.top);
    }
    std::string stop;
    if (form_.include_stop) stop = stop_text(event, *form_.tokenizer, form_.skip_special_tokens);
    std::vector<Event> parts = choice.parts.take(event, stop);
    if (form_.prompt_logprobs >= 0 && index == 0 && !event.prompt_logprobs.empty()) {
      prompt_logprobs_ =
          prompt_logprobs_json(*form_.tokenizer, event.prompt_logprobs, form_.prompt_logprobs);
    }
    return parts;
  }

  std::string delta_of(const Event& part) const {
    switch (part.kind) {
      case Event::Kind::kReasoning:
        return form_.include_reasoning ? reasoning_json(part.text) : "";
      case Event::Kind::kContent:
        return "\"content\":" + json_string(part.text);
      case Event::Kind::kCallBegin:
        return fmt::format(R"("tool_calls":[{{"index":{},{}}}])", part.call,
                           Call{new_call_id(), part.text, ""}.json());
      case Event::Kind::kArguments:
        return fmt::format(R"("tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}])",
                           part.call, json_string(part.text));
      case Event::Kind::kCallEnd:
        break;
    }
    return "";
  }

  // "length" stays: a call may have been cut off.
  std::string finish(size_t choice, const engine::Event& last) const {
    const bool stopped = last.reason == engine::FinishReason::kStop;
    return fmt::format(
        R"("finish_reason":"{}","stop_reason":{})",
        stopped && choices_[choice].parts.ending().calls > 0 ? "tool_calls" : finish_reason(last),
        stop_reason_json(last, form_.stop_tokens));
  }

  int reasoning_tokens() const {
    int tokens = 0;
    for (const ChatChoice& choice : choices_) tokens += choice.parts.reasoning_tokens();
    return tokens;
  }

  // What has gathered since the last call: a token's text may come later than the token, or never,
  // and its probability must come all the same.
  std::string take_logprobs(size_t choice) {
    std::string& entries = choices_[choice].logprobs;
    if (!form_.logprobs || entries.empty()) return "null";
    return "{\"content\":[" + std::exchange(entries, "") + "],\"refusal\":null}";
  }

  std::string chunk(size_t choice, const std::string& delta, const std::string& finish,
                    const engine::Usage& so_far) {
    std::string text = fmt::format(
        R"({},"choices":[{{"index":{},"delta":{{{}}},"logprobs":{},{}}}])", head_, choice, delta,
        take_logprobs(choice), finish.empty() ? "\"finish_reason\":null" : finish);
    if (form_.continuous_usage) {
      text += ",\"usage\":" + usage_json(so_far, choices_[choice].parts.reasoning_tokens());
    }
    return net::sse_event(text + "}");
  }

  const ChatForm form_;
  const std::string head_;
  std::vector<ChatChoice> choices_;
  std::string prompt_logprobs_ = "null";
};

}  // namespace

ApiResult<Prepared> prepare_chat(const Context& context, const Json& body, const std::string& id) {
  Fields fields(body);
  check_model(fields, context);
  auto read = read_chat_request(fields, context, id);
  if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
  auto& request = std::get<ChatRequest>(read);
  log_ignored_fields(fields, id);
  const GenerationParams& params = request.params;
  const AnswerParts parts(request.parser(*context.tokenizer), request.parallel_calls);
  Prepared prepared;
  prepared.requests = std::move(request.requests);
  // The prompt's are told once, beside the choices.
  for (size_t i = 1; i < prepared.requests.size(); ++i) prepared.requests[i].prompt_logprobs = -1;
  prepared.choices_of_a_prompt = prepared.requests.size();
  prepared.stream = params.stream;
  prepared.answer = std::make_unique<ChatAnswer>(
      ChatForm{.identity = {id, context.model_name(), std::time(nullptr)},
               .tokenizer = context.tokenizer,
               .stop_tokens = params.stop_tokens,
               .include_reasoning = request.include_reasoning,
               .include_usage = params.include_usage || context.options.force_include_usage,
               .continuous_usage = params.continuous_usage,
               .include_stop = params.include_stop,
               .skip_special_tokens = params.skip_special_tokens,
               .logprobs = params.logprobs >= 0,
               .prompt_logprobs = params.prompt_logprobs,
               .prompt_tokens = static_cast<int>(prepared.requests[0].prompt.size())},
      std::vector<ChatChoice>(prepared.requests.size(), ChatChoice(parts)));
  return prepared;
}

}  // namespace lagoon::api
