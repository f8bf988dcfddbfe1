// POST /v1/completions.
#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/context.h"
#include "api/generation_params.h"
#include "api/json.h"
#include "api/logprobs.h"
#include "api/response_text.h"
#include "net/sse.h"

namespace lagoon::api {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;  // as OpenAI's

// A prompt as it goes to the engine, and as it is echoed.
struct Prompt {
  std::vector<int32_t> ids = {};
  std::string text = {};  // as sent
  bool of_ids = false;    // it was sent as ids
  size_t hidden = 0;      // ids at the start that are not in the text
};

struct CompletionForm {
  ResponseIdentity identity;
  const text::Tokenizer* tokenizer = nullptr;
  std::vector<int32_t> stop_tokens;
  bool include_usage = false;
  bool continuous_usage = false;
  bool include_stop = false;
  bool skip_special_tokens = true;
  bool echo = false;
  bool prompt_only = false;  // echo with max_tokens 0
  int logprobs = -1;
  int prompt_logprobs = -1;
};

// One choice of the answer.
struct CompletionChoice {
  const Prompt* prompt;
  CompletionLogprobs logprobs;
  bool begun = false;  // an event has come
  // The whole answer:
  std::string text = {};
  std::string finish = {};               // fields
  std::string prompt_logprobs = "null";  // JSON
};

class CompletionAnswer : public Answer {
 public:
  // `prompts` are those of the choices, `each` choices for a prompt.
  CompletionAnswer(CompletionForm form, std::vector<Prompt> prompts, size_t each)
      : form_(std::move(form)),
        prompts_(std::move(prompts)),
        head_(response_head(form_.identity, "text_completion")) {
    const CompletionLogprobs none(*form_.tokenizer, form_.skip_special_tokens);
    for (const Prompt& prompt : prompts_) {
      for (size_t i = 0; i < each; ++i) {
        choices_.push_back({.prompt = &prompt, .logprobs = none});
      }
    }
  }

  std::string stream_begin() override { return ""; }

  std::string stream_event(size_t index, const engine::Event& event) override {
    const std::string text = take(index, event);
    std::string chunks;
    if (!text.empty()) {
      chunks = chunk(index, text, "\"finish_reason\":null,\"stop_reason\":null", event.usage);
    }
    if (event.finished) chunks += chunk(index, "", finish(event), event.usage);
    return chunks;
  }

  std::string stream_end(const engine::Usage& total) override {
    if (!form_.include_usage) return net::sse_done();
    return net::sse_event(head_ + ",\"choices\":[],\"usage\":" + usage(total) + "}") +
           net::sse_done();
  }

  void add(size_t index, const engine::Event& event) override {
    choices_[index].text += take(index, event);
    if (event.finished) choices_[index].finish = finish(event);
  }

  std::string body(const engine::Usage& total) override {
    std::string text = head_ + ",\"choices\":[";
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (i > 0) text += ',';
      text += choice_json(i, choices_[i].text, choices_[i].finish);
      if (form_.prompt_logprobs < 0) continue;
      text.back() = ',';
      text += "\"prompt_logprobs\":" + choices_[i].prompt_logprobs + "}";
    }
    return text + "],\"usage\":" + usage(total) + "}";
  }

 private:
  // The text of an event; log probabilities are kept until they are told.
  std::string take(size_t index, const engine::Event& event) {
    CompletionChoice& choice = choices_[index];
    std::string text;
    if (!std::exchange(choice.begun, true)) text = begin(choice, event);
    if (form_.prompt_only) return text;
    for (const engine::Piece& piece : event.pieces) {
      text += piece.text;
      if (form_.logprobs >= 0 && piece.logprob) choice.logprobs.add(*piece.logprob, piece.top);
    }
    text += event.tail;
    if (form_.include_stop) text += stop_text(event, *form_.tokenizer, form_.skip_special_tokens);
    return text;
  }

  // What stands before a choice's first token.
  std::string begin(CompletionChoice& choice, const engine::Event& first) {
    if (form_.prompt_logprobs >= 0) {
      choice.prompt_logprobs =
          prompt_logprobs_json(*form_.tokenizer, first.prompt_logprobs, form_.prompt_logprobs);
    }
    if (!form_.echo) return "";
    if (form_.logprobs >= 0) {
      choice.logprobs.add_prompt(choice.prompt->ids, first.prompt_logprobs, form_.logprobs,
                                 choice.prompt->hidden);
    }
    return choice.prompt->text;
  }

  std::string finish(const engine::Event& last) const {
    if (form_.prompt_only) return R"("finish_reason":"length","stop_reason":null)";
    return fmt::format(R"("finish_reason":"{}","stop_reason":{})", finish_reason(last),
                       stop_reason_json(last, form_.stop_tokens));
  }

  std::string choice_json(size_t index, const std::string& text, const std::string& finish) {
    CompletionLogprobs& logprobs = choices_[index].logprobs;
    std::string json = fmt::format("{{\"index\":{},\"text\":", index);
    append_json_string(json, text);
    return json + ",\"logprobs\":" + (logprobs.empty() ? "null" : logprobs.take_json()) + "," +
           finish + "}";
  }

  std::string chunk(size_t index, const std::string& text, const std::string& finish,
                    const engine::Usage& so_far) {
    std::string json = head_ + ",\"choices\":[" + choice_json(index, text, finish) + "]";
    if (form_.continuous_usage) json += ",\"usage\":" + usage(so_far);
    return net::sse_event(json + "}");
  }

  std::string usage(engine::Usage usage) const {
    if (form_.prompt_only) usage.completion_tokens = 0;
    return usage_json(usage, -1);
  }

  const CompletionForm form_;
  const std::vector<Prompt> prompts_;
  const std::string head_;
  std::vector<CompletionChoice> choices_;
};

bool is_id_list(const Json& value) {
  return value.is_array() && !value.empty() && value[0].is_number();
}

Prompt prompt_of_ids(Fields& fields, const Context& context, const Json& ids,
                     const std::string& location) {
  Prompt prompt{.of_ids = true};
  const int32_t vocab = context.tokenizer->vocab_size();
  prompt.ids.reserve(ids.size());
  for (const Json& id : ids) {
    if (!id.is_number_integer()) {
      fields.fail(invalid_field(fmt::format("{}.{}", location, prompt.ids.size()),
                                "Input should be a token id."));
      return prompt;
    }
    if (id < 0 || id >= vocab) {
      fields.fail(bad_value("prompt", fmt::format("Token id {} is out of vocabulary", id.dump())));
      return prompt;
    }
    prompt.ids.push_back(id.get<int32_t>());
  }
  return prompt;
}

Prompt prompt_of_text(Fields& fields, const Context& context, const std::string& text,
                      bool add_special_tokens) {
  Prompt prompt;
  auto encoded = encode_prompt(context, text);
  if (auto* error = std::get_if<ApiError>(&encoded)) {
    fields.fail(std::move(*error));
    return prompt;
  }
  prompt.ids = std::move(std::get<std::vector<int32_t>>(encoded));
  prompt.text = text;
  const size_t without = prompt.ids.size();
  if (add_special_tokens) context.tokenizer->add_prefix(prompt.ids);
  prompt.hidden = prompt.ids.size() - without;
  return prompt;
}

Prompt one_prompt(Fields& fields, const Context& context, const Json& json,
                  const std::string& location, bool add_special_tokens) {
  Prompt prompt;
  if (json.is_string()) {
    prompt =
        prompt_of_text(fields, context, json.get_ref<const std::string&>(), add_special_tokens);
  } else if (is_id_list(json)) {
    prompt = prompt_of_ids(fields, context, json, location);
  } else if (!json.is_array() || !json.empty()) {
    fields.fail(invalid_field(location, "Input should be a string or a list of token ids."));
  }
  if (prompt.ids.empty()) fields.fail(bad_value("prompt", "prompt must not be empty."));
  return prompt;
}

// `prompt`: a string, a list of token ids, or a list of these.
std::vector<Prompt> read_prompts(Fields& fields, const Context& context, int n) {
  const bool add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  const Json* prompt = fields.any("prompt");
  if (prompt == nullptr) {
    fields.fail(invalid_field("prompt", "Field required"));
    return {};
  }
  const bool several = prompt->is_array() && !prompt->empty() &&
                       ((*prompt)[0].is_string() || (*prompt)[0].is_array());
  if (!several) return {one_prompt(fields, context, *prompt, "prompt", add_special_tokens)};
  if (prompt->size() * static_cast<size_t>(n) > static_cast<size_t>(kMaxChoices)) {
    fields.fail(bad_value(
        "prompt", fmt::format("A request has at most {} choices, and {} prompts with n={} ask for "
                              "more; send several requests.",
                              kMaxChoices, prompt->size(), n)));
    return {};
  }
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < prompt->size() && !fields.failed(); ++i) {
    prompts.push_back(
        one_prompt(fields, context, (*prompt)[i], fmt::format("prompt.{}", i), add_special_tokens));
  }
  return prompts;
}

}  // namespace

ApiResult<Prepared> prepare_completion(const Context& context, const Json& body,
                                       const std::string& id) {
  Fields fields(body);
  check_model(fields, context);
  const GenerationParams params = read_generation_params(fields, context.options.default_sampling,
                                                         context.tokenizer->vocab_size(), false);
  refuse_unsupported(fields, false);
  std::vector<Prompt> prompts;
  if (!fields.failed()) prompts = read_prompts(fields, context, params.n);
  if (fields.failed()) return fields.error();
  log_ignored_fields(fields, id);

  Prepared prepared;
  for (Prompt& prompt : prompts) {
    if (auto error = add_requests(params, prompt.ids, context.engine->max_length(),
                                  kDefaultMaxTokens, id, prepared.requests)) {
      return std::move(*error);
    }
    if (!params.echo) {
      prompt = {};
    } else if (prompt.of_ids) {
      prompt.text = decode(*context.tokenizer, prompt.ids);
    }
  }
  prepared.choices_of_a_prompt = static_cast<size_t>(params.n);
  prepared.stream = params.stream;
  prepared.answer = std::make_unique<CompletionAnswer>(
      CompletionForm{.identity = {id, context.model_name(), std::time(nullptr)},
                     .tokenizer = context.tokenizer,
                     .stop_tokens = params.stop_tokens,
                     .include_usage = params.include_usage || context.options.force_include_usage,
                     .continuous_usage = params.continuous_usage,
                     .include_stop = params.include_stop,
                     .skip_special_tokens = params.skip_special_tokens,
                     .echo = params.echo,
                     .prompt_only = params.echo && params.max_tokens == 0,
                     .logprobs = params.logprobs,
                     .prompt_logprobs = params.prompt_logprobs},
      std::move(prompts), prepared.choices_of_a_prompt);
  return prepared;
}

}  // namespace lagoon::api
