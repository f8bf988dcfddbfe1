// Text from bytes that come in pieces.
#pragma once

#include <string>
#include <string_view>

namespace lagoon::text {

// Gives out whole characters: bytes that may still become one are held back, and those that never
// will are U+FFFD, one for each maximal subpart (see decode_char()).
class Utf8Repair {
 public:
  // Adds bytes; appends the characters that are complete to `out`.
  void push(std::string_view bytes, std::string& out);
  // The end: appends U+FFFD where a character is unfinished.
  void finish(std::string& out);

 private:
  std::string pending_;
};

}  // namespace lagoon::text
