#include "api/context.h"

#include <fmt/core.h>

#include <algorithm>

#include "api/generation_params.h"
#include "api/json.h"
#include "base/log.h"

namespace lagoon::api {
namespace {

constexpr size_t kNamesLogged = 16;
constexpr size_t kNameBytesLogged = 64;

std::string one_model_json(const Context& context, const std::string& name) {
  return fmt::format(
      R"({{"id":{},"object":"model","created":{},"owned_by":"lagoon","root":{},"parent":null,)"
      R"("max_model_len":{},"permission":[{{"id":"modelperm-{:x}","object":"model_permission",)"
      R"("created":{},"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,)"
      R"("allow_search_indices":false,"allow_view":true,"allow_fine_tuning":false,)"
      R"("organization":"*","group":null,"is_blocking":false}}]}})",
      json_string(name), context.created, json_string(context.options.model_root),
      context.engine->max_length(), context.created, context.created);
}

}  // namespace

ApiResult<std::vector<int32_t>> encode_prompt(const Context& context, const std::string& text) {
  const size_t most = context.tokenizer->most_bytes_of_a_token();
  if (most > 0) {
    const auto least_tokens = static_cast<int64_t>((text.size() + most - 1) / most);
    const auto fits = resolve_max_tokens(std::nullopt, least_tokens, context.engine->max_length());
    if (const auto* error = std::get_if<ApiError>(&fits)) return *error;
  }
  return context.tokenizer->encode(text);
}

std::string decode(const text::Tokenizer& tokenizer, std::span<const int32_t> tokens) {
  text::Detokenizer detokenizer(tokenizer, false);
  std::string text;
  for (const int32_t token : tokens) text += detokenizer.push(token);
  return text + detokenizer.finish();
}

ApiError no_such_model(const std::string& name) {
  return {.status = 404,
          .type = "NotFoundError",
          .message = fmt::format("The model `{}` does not exist.", name),
          .param = "model"};
}

void check_model(Fields& fields, const Context& context) {
  const auto model = fields.string("model");
  const auto& names = context.options.model_names;
  if (!model || std::find(names.begin(), names.end(), *model) != names.end()) return;
  fields.fail(no_such_model(*model));
}

void log_ignored_fields(const Fields& fields, const std::string& id) {
  const auto names = fields.unread();
  if (names.empty()) return;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kNamesLogged); ++i) {
    list += (i > 0 ? ", " : "") + json_string(names[i].substr(0, kNameBytesLogged));
  }
  if (names.size() > kNamesLogged) list += fmt::format(" and {} more", names.size() - kNamesLogged);
  LOG(warning, "{} has fields that are not known and ignored: {}", id, list);
}

std::string models_json(const Context& context) {
  std::string text = R"({"object":"list","data":[)";
  const auto& names = context.options.model_names;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += ',';
    text += one_model_json(context, names[i]);
  }
  return text + "]}";
}

ApiResult<std::string> model_json(const Context& context, const std::string& name) {
  const auto& names = context.options.model_names;
  if (std::find(names.begin(), names.end(), name) == names.end()) return no_such_model(name);
  return one_model_json(context, name);
}

}  // namespace lagoon::api
