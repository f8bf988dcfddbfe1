// Log lines on stderr: "2026-11-30 08:22:34.123 INFO  message", or a JSON object a line.
// LOG(info, "format {}", argument), with levels debug, info, warning, error; LOG_FOR(id, info, ...)
// where the line is about one request. A line is written with one write(), so that threads do not
// mix theirs, and stays one line whatever is in it. Prompt text is logged only where the user asks
// for it.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace lagoon {

enum class LogLevel { debug, info, warning, error };
enum class LogFormat {
  kText,
  kJson,  // {"time":"2026-11-30T07:22:34.123Z","level":"info","request_id":...,"message":...}
};

void set_log_level(LogLevel lowest);
void set_log_format(LogFormat format);
bool log_enabled(LogLevel level);
// `request_id` is "" for lines that are about no request; in text it stands before the message.
void log_line(LogLevel level, std::string_view message, std::string_view request_id = {});

}  // namespace lagoon

#define LOG(level, ...)                                                          \
  do {                                                                           \
    if (::lagoon::log_enabled(::lagoon::LogLevel::level))                        \
      ::lagoon::log_line(::lagoon::LogLevel::level, ::fmt::format(__VA_ARGS__)); \
  } while (0)

#define LOG_FOR(request_id, level, ...)                                                        \
  do {                                                                                         \
    if (::lagoon::log_enabled(::lagoon::LogLevel::level))                                      \
      ::lagoon::log_line(::lagoon::LogLevel::level, ::fmt::format(__VA_ARGS__), (request_id)); \
  } while (0)
