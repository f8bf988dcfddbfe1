// What both kinds of subject make prompts of.
#pragma once

#include <cstddef>
#include <string>

namespace lagoon::bench {

// Code has about so many bytes per token; a first guess.
constexpr size_t kBytesPerToken = 4;

// The message of a chat prompt.
inline std::string chat_request(const std::string& code) {
  return "Complete this module:\n\n" + code;
}

}  // namespace lagoon::bench
