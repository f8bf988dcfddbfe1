#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <ctime>
#include <string>

#include "base/json_escape.h"
#include "base/utf8.h"

namespace lagoon {
namespace {

std::atomic<LogLevel> lowest_level{LogLevel::info};
std::atomic<LogFormat> line_format{LogFormat::kText};

struct LevelName {
  const char* text;
  const char* json;
};

LevelName level_name(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return {"DEBUG", "debug"};
    case LogLevel::info:
      return {"INFO ", "info"};
    case LogLevel::warning:
      return {"WARN ", "warning"};
    case LogLevel::error:
      return {"ERROR", "error"};
  }
  return {"?", "?"};
}

// Appends the text with control characters as escapes: what a client sends must not begin a line
// of its own, nor steer a terminal.
void append_one_line(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
}

std::string stamp(const char* format, const tm& time) {
  char text[32];
  return {text, std::strftime(text, sizeof text, format, &time)};
}

std::string text_line(const timespec& now, LogLevel level, std::string_view message,
                      std::string_view request_id) {
  tm local{};
  localtime_r(&now.tv_sec, &local);
  std::string line = fmt::format("{}.{:03} {} ", stamp("%Y-%m-%d %H:%M:%S", local),
                                 now.tv_nsec / 1'000'000, level_name(level).text);
  if (!request_id.empty()) {
    append_one_line(line, request_id);
    line += ' ';
  }
  append_one_line(line, message);
  return line += '\n';
}

std::string json_line(const timespec& now, LogLevel level, std::string_view message,
                      std::string_view request_id) {
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  std::string line =
      fmt::format(R"({{"time":"{}.{:03}Z","level":"{}")", stamp("%Y-%m-%dT%H:%M:%S", utc),
                  now.tv_nsec / 1'000'000, level_name(level).json);
  if (!request_id.empty()) {
    line += R"(,"request_id":")";
    append_json_escaped(line, to_valid_utf8(request_id));
    line += '"';
  }
  line += R"(,"message":")";
  append_json_escaped(line, to_valid_utf8(message));
  return line += "\"}\n";
}

}  // namespace

void set_log_level(LogLevel lowest) {
  lowest_level = lowest;
}

void set_log_format(LogFormat format) {
  line_format = format;
}

bool log_enabled(LogLevel level) {
  return level >= lowest_level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view message, std::string_view request_id) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const bool json = line_format.load(std::memory_order_relaxed) == LogFormat::kJson;
  const std::string line = json ? json_line(now, level, message, request_id)
                                : text_line(now, level, message, request_id);
  // A failed write to stderr has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace lagoon
