// "..." % values.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/error.h"
#include "text/jinja/escape.h"
#include "text/jinja/formatting.h"
#include "text/jinja/number_format.h"
#include "text/jinja/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

using View = std::string_view;

constexpr int64_t kMostWidth = std::numeric_limits<int32_t>::max();  // and precision

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& values)
      : runtime_(runtime), rest_(format.string()), escapes_(format.is_safe()), values_(values) {}

  std::string run() {
    while (!rest_.empty()) {
      const size_t sign = rest_.find('%');
      append(rest_.substr(0, sign));
      if (sign == View::npos) break;
      rest_.remove_prefix(sign + 1);
      if (rest_.starts_with('%')) {
        append("%");
        rest_.remove_prefix(1);
      } else {
        format_one();
      }
    }
    const bool is_mapping = !values_.is_tuple() && !values_.is_string() && !is_plain();
    if (next_ < count() && !is_mapping) {
      throw Failure("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  void append(View piece) { append_text(runtime_.budget, out_, piece); }
  // Numbers, booleans and None cannot be subscripted: they count as one value.
  bool is_plain() const { return values_.is_number() || values_.is_null(); }
  size_t count() const { return values_.is_tuple() ? values_.tuple().size() : 1; }

  char peek() const {
    if (rest_.empty()) throw Failure("incomplete format");
    return rest_[0];
  }
  char take() {
    const char c = peek();
    rest_.remove_prefix(1);
    return c;
  }

  Value next_value() {
    if (next_ >= count()) throw Failure("not enough arguments for format string");
    const Value value = values_.is_tuple() ? values_.tuple()[next_] : values_;
    ++next_;
    return value;
  }

  // (name): the value comes from the dict.
  Value named_value() {
    rest_.remove_prefix(1);
    int open = 1;
    size_t end = 0;
    for (; end < rest_.size(); ++end) {
      if (rest_[end] == '(') ++open;
      if (rest_[end] == ')' && --open == 0) break;
    }
    if (open > 0) throw Failure("incomplete format key");
    const View key = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    require_defined(values_);
    if (!values_.is_dict()) throw Failure("format requires a mapping");
    const Value* found = values_.dict().find(key);
    if (found == nullptr) throw Failure(fmt::format("the key {} is not there", repr_string(key)));
    return *found;
  }

  int64_t size_option() {
    if (peek() == '*') {
      rest_.remove_prefix(1);
      const Value value = next_value();
      if (!value.is_int()) throw Failure("* wants int");
      if (value.integer() < -kMostWidth || value.integer() > kMostWidth) {
        throw Failure("width too big");
      }
      return value.integer();
    }
    int64_t number = 0;
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') {
      if (number > kMostWidth) throw Failure("width too big");
      number = number * 10 + (take() - '0');
    }
    return number;
  }

  void format_one();
  std::string text_of(char conversion, const Value& value);
  std::string integer_of(char conversion, const Value& value, const FormatSpec& spec);
  std::string float_of(char conversion, const Value& value, FormatSpec spec);

  Runtime& runtime_;
  View rest_;
  bool escapes_;
  const Value& values_;
  size_t next_ = 0;
  std::string out_;
};

void PercentFormatter::format_one() {
  std::optional<Value> named;
  if (peek() == '(') named = named_value();
  FormatSpec spec;
  bool zeros = false;
  for (;; rest_.remove_prefix(1)) {
    const char flag = peek();
    if (flag == '-') {
      spec.align = '<';
    } else if (flag == '+') {
      spec.sign = '+';
    } else if (flag == ' ') {
      if (spec.sign != '+') spec.sign = ' ';
    } else if (flag == '#') {
      spec.alternate = true;
    } else if (flag == '0') {
      zeros = true;
    } else {
      break;
    }
  }
  spec.width = size_option();
  if (spec.width < 0) {
    spec.align = '<';
    spec.width = -spec.width;
  }
  if (peek() == '.') {
    rest_.remove_prefix(1);
    spec.precision = std::max<int64_t>(size_option(), 0);
  }
  if (View("hlL").find(peek()) != View::npos) rest_.remove_prefix(1);
  const char conversion = take();
  constexpr View kNumeric = "diuoxXeEfFgG";
  const bool numeric = kNumeric.find(conversion) != View::npos;
  if (!numeric && View("srac").find(conversion) == View::npos) {
    throw Failure(fmt::format("unsupported format character '{}' ({:#x})", conversion,
                              static_cast<unsigned>(static_cast<unsigned char>(conversion))));
  }
  const Value value = named ? *named : next_value();
  if (!numeric) {
    if (spec.align == 0) spec.align = '>';
    if (conversion == 'c') spec.precision = FormatSpec::kNone;
    append(lay_out_text(runtime_.budget, text_of(conversion, value), spec));
    return;
  }
  if (zeros && spec.align == 0) {
    spec.align = '=';
    spec.fill = "0";
  }
  append(View("diuoxX").find(conversion) != View::npos ? integer_of(conversion, value, spec)
                                                       : float_of(conversion, value, spec));
}

std::string PercentFormatter::text_of(char conversion, const Value& value) {
  if (conversion == 'c') {
    if (value.is_string() && count_characters(value.string()) == 1) return value.string();
    if (!value.is_int() && !value.is_bool()) throw Failure("%c requires int or char");
    return format_value(runtime_.budget, value, "c");
  }
  Budget& budget = runtime_.budget;
  std::string text = conversion == 's' ? to_text(budget, value) : repr(budget, value);
  if (conversion == 'a') text = ascii_only(text);
  return escapes_ && !value.is_safe() ? escape_html(text) : text;
}

std::string PercentFormatter::integer_of(char conversion, const Value& value,
                                         const FormatSpec& spec) {
  const bool decimal = conversion == 'd' || conversion == 'i' || conversion == 'u';
  Value number = value;
  if (decimal) require_defined(value);
  if (decimal && value.is_float()) {
    const auto whole = truncate_float(value.floating());
    if (!whole) throw Failure("cannot convert float NaN to integer");
    number = Value(*whole);
  }
  if (number.is_big_integer()) {
    if (!decimal) throw Failure("the number is beyond the 64 bits that integers have here");
    const bool negative = number.big_integer()[0] == '-';
    return lay_out_number(runtime_.budget, sign_of(negative, spec.sign), "",
                          number.big_integer().substr(negative ? 1 : 0), spec);
  }
  if (!number.is_int() && !number.is_bool()) {
    throw Failure(fmt::format("%{} format: {}, not {}", conversion,
                              decimal ? "a real number is required" : "an integer is required",
                              type_name(value)));
  }
  const int64_t integer = plus(number).integer();
  std::string digits = integer_digits(integer, decimal ? 'd' : conversion);
  if (spec.precision > static_cast<int64_t>(digits.size())) {
    runtime_.budget.charge_text(static_cast<size_t>(spec.precision));
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  const std::string prefix = spec.alternate && !decimal ? std::string("0") + conversion : "";
  return lay_out_number(runtime_.budget, sign_of(integer < 0, spec.sign), prefix, digits, spec);
}

std::string PercentFormatter::float_of(char conversion, const Value& value, FormatSpec spec) {
  require_defined(value);
  if (!value.is_number()) {
    throw Failure(fmt::format("must be real number, not {}", type_name(value)));
  }
  spec.type = conversion;
  const double number = as_double(value);
  const std::string digits = float_digits(runtime_.budget, number, spec);
  return lay_out_number(runtime_.budget, sign_of(std::signbit(number), spec.sign), "", digits,
                        spec);
}

}  // namespace

Value format_percent(Runtime& runtime, const Value& format, const Value& values) {
  return runtime.make_text_like(PercentFormatter(runtime, format, values).run(), format);
}

}  // namespace lagoon::text::jinja
