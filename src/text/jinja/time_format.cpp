#include "text/jinja/time_format.h"

#include <fmt/core.h>

#include "text/jinja/error.h"

namespace lagoon::text::jinja {

std::string format_time(const std::tm& time, int microseconds, std::string_view format) {
  if (format.find('\0') != std::string_view::npos) throw Failure("embedded null byte");
  std::string rest;  // for the C library
  for (size_t i = 0; i < format.size(); ++i) {
    const bool directive = format[i] == '%' && i + 1 < format.size();
    if (!directive) {
      rest += format[i];
      continue;
    }
    const char kind = format[++i];
    if (kind == 'f') {
      rest += fmt::format("{:06}", microseconds);
    } else if (kind != 'z' && kind != 'Z') {
      rest += '%';
      rest += kind;
    }
  }
  if (rest.empty()) return rest;
  std::string out(rest.size() * kMostTimeBytesPerSign, '\0');
  // The template's own format: what it may say is the C library's to know.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  out.resize(std::strftime(out.data(), out.size(), rest.c_str(), &time));
#pragma GCC diagnostic pop
  if (out.empty()) throw Failure("the time in this format is too long");
  return out;
}

}  // namespace lagoon::text::jinja
