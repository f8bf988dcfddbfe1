// The global functions: Jinja2's, and those transformers adds for chat templates.
#include <fmt/core.h>

#include <ctime>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/builtins.h"
#include "text/jinja/error.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/runtime.h"
#include "text/jinja/time_format.h"

namespace lagoon::text::jinja {
namespace {

// What dict() and namespace() are given: a dict or pairs, then named values.
Dict collect(Runtime& runtime, Arguments& arguments, const char* function) {
  if (arguments.positional.size() > 1) {
    throw Failure(fmt::format("{} expected at most 1 argument, got {}", function,
                              arguments.positional.size()));
  }
  Dict items;
  if (!arguments.positional.empty()) {
    const Value& given = arguments.positional[0];
    if (given.is_dict()) {
      items = given.dict();
    } else {
      for (const Value& item : iterate(runtime, given)) {
        const List pair = iterate(runtime, item);
        if (pair.size() != 2 || !pair[0].is_string()) {
          throw Failure(fmt::format("{}() needs pairs of a string and a value", function));
        }
        items.set(pair[0].string(), pair[1]);
      }
    }
  }
  runtime.budget.charge(items.size() + arguments.named.size());
  for (auto& [name, value] : arguments.named) items.set(name, std::move(value));
  return items;
}

Value make_namespace(Runtime& runtime, const Value&, Arguments& arguments) {
  return runtime.new_namespace(collect(runtime, arguments, "namespace"));
}

Value make_dict(Runtime& runtime, const Value&, Arguments& arguments) {
  return runtime.make_dict(collect(runtime, arguments, "dict"));
}

Value range(Runtime&, const Value&, Arguments& arguments) {
  constexpr uint64_t kMaxRange = 100000;  // the sandbox's
  const BoundArguments bound("range", {"start", "stop", "step"}, arguments, 1);
  const bool only_stop = bound.find(1) == nullptr;
  const int64_t start = only_stop ? 0 : bound.integer(0, 0);
  const int64_t stop = bound.integer(only_stop ? 0 : 1, 0);
  const int64_t step = bound.integer(2, 1);
  if (step == 0) throw Failure("range() arg 3 must not be zero");
  uint64_t count = 0;
  if (step > 0 ? start < stop : start > stop) {
    // Unsigned: the distance may not fit a signed number.
    const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                       : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
    const uint64_t stride =
        step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
    count = (distance - 1) / stride + 1;
  }
  if (count > kMaxRange) {
    throw Failure(fmt::format(
        "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange));
  }
  return std::shared_ptr<Object>(
      std::make_shared<Range>(start, stop, step, static_cast<size_t>(count)));
}

Value cycler(Runtime& runtime, const Value&, Arguments& arguments) {
  if (!arguments.named.empty()) throw Failure("cycler() takes no keyword arguments");
  if (arguments.positional.empty()) throw Failure("at least one item has to be provided");
  return std::shared_ptr<Object>(
      std::make_shared<Cycler>(runtime.make_list(std::move(arguments.positional))));
}

Value joiner(Runtime&, const Value&, Arguments& arguments) {
  const BoundArguments bound("joiner", {"sep"}, arguments);
  return std::shared_ptr<Object>(std::make_shared<Joiner>(bound.get(0, Value(", "))));
}

Value raise_exception(Runtime& runtime, const Value&, Arguments& arguments) {
  const BoundArguments bound("raise_exception", {"message"}, arguments, 1);
  throw RaisedByTemplate(to_text(runtime.budget, bound.get(0)));
}

// datetime.now().strftime(format), in local time.
Value strftime_now(Runtime& runtime, const Value&, Arguments& arguments) {
  const BoundArguments bound("strftime_now", {"format"}, arguments, 1);
  const std::string_view format = bound.string(0, "");
  runtime.budget.charge_text(format.size() * kMostTimeBytesPerSign);
  std::timespec now{};
  std::timespec_get(&now, TIME_UTC);
  std::tm local{};
  localtime_r(&now.tv_sec, &local);
  return runtime.make_text(format_time(local, static_cast<int>(now.tv_nsec / 1000), format));
}

}  // namespace

Builtin find_function(std::string_view name) {
  static const std::unordered_map<std::string_view, Builtin> kFunctions = {
      {"namespace", make_namespace},
      {"dict", make_dict},
      {"range", range},
      {"cycler", cycler},
      {"joiner", joiner},
      {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
  };
  const auto found = kFunctions.find(name);
  return found != kFunctions.end() ? found->second : nullptr;
}

bool is_function_of_jinja(std::string_view name) {
  return name == "lipsum";
}

}  // namespace lagoon::text::jinja
