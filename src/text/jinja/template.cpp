#include "text/jinja/template.h"

#include <fmt/core.h>

#include <new>

#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"
#include "text/jinja/runtime.h"

namespace lagoon::text::jinja {
namespace {

constexpr size_t kMaxSourceBytes = size_t{1} << 20;

Error failed_to_render(ErrorCode code, int line, std::string_view message) {
  if (line <= 0) return Error{code, fmt::format("chat template: {}", message)};
  return Error{code, fmt::format("chat template line {}: {}", line, message)};
}

}  // namespace

struct Template::Impl {
  TemplateTree tree;
};

Template::Template() : impl_(std::make_unique<Impl>()) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Result<Template> Template::parse(std::string_view source, const std::string& name) {
  if (source.size() > kMaxSourceBytes) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: the template is longer than {} bytes", name, kMaxSourceBytes)};
  }
  Template parsed;
  try {
    parsed.impl_->tree = parse_template(source);
  } catch (const Failure& failure) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}:{}: {}", name, failure.line(), failure.message())};
  }
  return parsed;
}

Result<std::string> Template::render(const Dict& variables, const Limits& limits) const {
  Runtime runtime(limits);
  try {
    for (const auto& [name, value] : variables.items()) {
      if (value.depth() > kMaxValueDepth) {
        throw Failure(
            fmt::format("the variable '{}' nests more than {} levels deep", name, kMaxValueDepth));
      }
    }
    return Interpreter(runtime, variables).render(impl_->tree);
  } catch (const RaisedByTemplate& raised) {
    return Error{ErrorCode::kInvalidArgument, raised.message()};
  } catch (const Failure& failure) {
    const int line = failure.line() > 0 ? failure.line() : runtime.line;
    return failed_to_render(ErrorCode::kInvalidArgument, line, failure.message());
  } catch (const std::bad_alloc&) {
    return failed_to_render(ErrorCode::kResourceExhausted, runtime.line, "out of memory");
  }
}

}  // namespace lagoon::text::jinja
