#include "net/sse_reader.h"

#include <algorithm>
#include <utility>

namespace lagoon::net {

std::vector<std::string> SseReader::push(std::string_view piece) {
  std::vector<std::string> events;
  for (const char c : piece) {
    // A line ends with LF, CR or both.
    const bool second_half = c == '\n' && after_carriage_return_;
    after_carriage_return_ = c == '\r';
    if (second_half) continue;
    if (c == '\n' || c == '\r') {
      end_line(events);
    } else {
      line_ += c;
    }
  }
  return events;
}

void SseReader::end_line(std::vector<std::string>& events) {
  const std::string line = std::exchange(line_, {});
  if (line.empty()) {
    if (has_data_) events.push_back(std::exchange(data_, {}));
    has_data_ = false;
    return;
  }
  const size_t colon = std::min(line.find(':'), line.size());
  if (std::string_view(line).substr(0, colon) != "data") return;
  std::string_view value = std::string_view(line).substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace lagoon::net
