// JSON of request bodies, read with limits so that a hostile body costs no more than its length,
// and JSON text of responses. Objects keep the order of their keys, since templates print them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/value.h"

namespace lagoon::api {

using Json = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 64;           // of arrays and objects in each other
inline constexpr size_t kMaxJsonKeys = 1024;       // of one object
inline constexpr size_t kMaxJsonValues = 2 << 20;  // of one text, all levels together

// Parses UTF-8 JSON text (RFC 8259). Of a key that comes twice the last value stands. An escape
// that is half of a surrogate pair stands for U+FFFD. Errors (kInvalidArgument) say what is wrong
// and where, or which limit is passed.
Result<Json> parse_json(std::string_view text);

// The same value for templates. Integers outside -2^63..2^64-1 are floats already.
text::jinja::Value to_value(const Json& json);

// JSON text without spaces; invalid UTF-8 becomes U+FFFD.
std::string dump(const Json& json);

// Appends `text` as a JSON string, quotes included; invalid UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);
std::string json_string(std::string_view text);

}  // namespace lagoon::api
