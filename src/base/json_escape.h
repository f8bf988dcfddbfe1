// The inside of JSON strings.
#pragma once

#include <string>
#include <string_view>

namespace lagoon {

// Appends valid UTF-8 text as it stands inside a JSON string (RFC 8259), quotes not included. Each
// character is escaped by itself, so text may come in pieces of whole characters.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace lagoon
