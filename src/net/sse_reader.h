// Server-sent events as a client reads them (https://html.spec.whatwg.org, "Server-sent events"):
// the data of each event, from a body that arrives in pieces of any size.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lagoon::net {

class SseReader {
 public:
  // The data of the events that this piece completes. Comments, other fields and events without
  // data are left out; data lines of one event are joined by line breaks.
  std::vector<std::string> push(std::string_view piece);

 private:
  void end_line(std::vector<std::string>& events);

  std::string line_;
  bool after_carriage_return_ = false;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace lagoon::net
