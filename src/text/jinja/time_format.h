// Dates as Python's datetime.strftime() writes them.
#pragma once

#include <cstddef>
#include <ctime>
#include <string>
#include <string_view>

namespace lagoon::text::jinja {

// What format_time() sets aside for each byte of its format: no field is longer, unless it is given
// a width.
inline constexpr size_t kMostTimeBytesPerSign = 100;

// `time` has no zone, as datetime.now() has none: %z and %Z are empty. %f is the microseconds; all
// else is the C library's, in the C locale. Throws Failure where the text would be too long.
std::string format_time(const std::tm& time, int microseconds, std::string_view format);

}  // namespace lagoon::text::jinja
