// Fields that are known and would change the answer in ways this version cannot.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <span>

#include "api/generation_params.h"

namespace lagoon::api {
namespace {

// A field that is accepted as long as it asks for nothing.
struct Neutral {
  const char* name;
  bool (*asks_for_nothing)(const Json& value);  // null always does
  const char* accepted;                         // completes "only ... is accepted"
};

bool is_false(const Json& value) {
  return value == false;
}
bool is_true(const Json& value) {
  return value == true;
}
bool is_one(const Json& value) {
  return value.is_number() && value == 1;
}
bool is_empty(const Json& value) {
  return value.is_structured() && value.empty();
}
bool is_empty_text(const Json& value) {
  return value.is_string() && value.empty();
}
bool never(const Json&) {
  return false;
}

bool is_text_format(const Json& value) {
  return value.is_object() && value.contains("type") && value["type"] == "text";
}
bool is_text_only(const Json& value) {
  return value.is_array() && value.size() == 1 && value[0] == "text";
}
bool is_none_or_auto(const Json& value) {
  return value == "none" || value == "auto";
}

constexpr Neutral kBoth[] = {
    {"detokenize", is_true, "true"},
    {"length_penalty", is_one, "1"},
    {"use_beam_search", is_false, "false"},
    {"bad_words", is_empty, "[]"},
    {"allowed_token_ids", is_empty, "[]"},
    {"logits_processors", is_empty, "[]"},
    {"response_format", is_text_format, R"({"type": "text"})"},
    {"structured_outputs", is_empty, "{}"},
    {"guided_json", never, "null"},
    {"guided_regex", never, "null"},
    {"guided_choice", never, "null"},
    {"guided_grammar", never, "null"},
    {"structural_tag", never, "null"},
    {"spaces_between_special_tokens", is_true, "true"},
    {"truncate_prompt_tokens", never, "null"},
    {"truncation_side", never, "null"},
    {"return_tokens_as_token_ids", is_false, "false"},
    {"return_token_ids", is_false, "false"},
    {"kv_transfer_params", never, "null"},
    {"vllm_xargs", is_empty, "{}"},
    {"thinking_token_budget", never, "null"},
    {"repetition_detection", never, "null"},
};

constexpr Neutral kChat[] = {
    {"echo", is_false, "false"},
    {"functions", is_empty, "[]"},
    {"function_call", is_none_or_auto, R"("none" or "auto")"},
    {"modalities", is_text_only, R"(["text"])"},
    {"audio", never, "null"},
    {"web_search_options", never, "null"},
    {"documents", is_empty, "[]"},
    {"chat_template", never, "null"},
    {"add_special_tokens", is_false, "false"},
    {"mm_processor_kwargs", is_empty, "{}"},
};

constexpr Neutral kCompletions[] = {
    {"suffix", is_empty_text, R"("")"},
    {"prompt_embeds", never, "null"},
};

void refuse(Fields& fields, std::span<const Neutral> table) {
  for (const Neutral& field : table) {
    const Json* value = fields.any(field.name);
    if (value == nullptr || field.asks_for_nothing(*value)) continue;
    fields.fail(bad_value(field.name,
                          fmt::format("`{}` is not supported by this version of Lagoon; only {} is "
                                      "accepted.",
                                      field.name, field.accepted)));
  }
}

}  // namespace

void refuse_unsupported(Fields& fields, bool chat) {
  refuse(fields, kBoth);
  if (chat) {
    refuse(fields, kChat);
  } else {
    refuse(fields, kCompletions);
  }
  // Known, and nothing about the answer depends on them.
  for (const char* name :
       {"user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention",
        "safety_identifier", "cache_salt", "prediction"}) {
    fields.any(name);
  }
}

}  // namespace lagoon::api
