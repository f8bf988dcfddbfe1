// Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html): the framing
// of streamed answers.
#pragma once

#include <string>
#include <string_view>

namespace lagoon::net {

inline constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";

// "data: <data>\n\n". `data` is one line, as JSON text is.
inline std::string sse_event(std::string_view data) {
  std::string event;
  event.reserve(data.size() + 8);
  event.append("data: ").append(data).append("\n\n");
  return event;
}

// The same with a name: "event: <name>\ndata: <data>\n\n".
inline std::string sse_event(std::string_view name, std::string_view data) {
  std::string event;
  event.reserve(name.size() + data.size() + 16);
  event.append("event: ").append(name).append("\ndata: ").append(data).append("\n\n");
  return event;
}

// ": <text>\n\n", which clients skip: a sign of life.
inline std::string sse_comment(std::string_view text) {
  return std::string(": ").append(text).append("\n\n");
}

// What OpenAI's streams end with.
inline std::string sse_done() {
  return sse_event("[DONE]");
}

}  // namespace lagoon::net
