#include "base/utf8.h"

#include <cstring>

#include "base/check.h"

namespace lagoon {
namespace {

// Bytes of the character that a lead byte begins (0 where it begins none) and the range in which
// its second byte must lie; all further ones lie in 80..BF.
struct Lead {
  uint8_t length;
  uint8_t second_low;
  uint8_t second_high;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // below: overlong
  if (byte == 0xED) return {3, 0x80, 0x9F};  // above: surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};  // below: overlong
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // above: beyond U+10FFFF
  return {0, 0, 0};
}

// The end of the run of ASCII that begins at `at`, or up to 7 bytes before it.
size_t skip_ascii(std::string_view text, size_t at) {
  constexpr uint64_t kHighBits = 0x8080808080808080U;
  while (at + sizeof(uint64_t) <= text.size()) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + at, sizeof bytes);
    if ((bytes & kHighBits) != 0) break;
    at += sizeof bytes;
  }
  return at;
}

}  // namespace

DecodedChar decode_char(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  const Lead lead = lead_of(first);
  if (lead.length == 1) return {first, 1, Utf8::kValid};
  if (lead.length == 0) return {0xFFFD, 1, Utf8::kInvalid};
  char32_t code_point = first & (0xFFU >> (lead.length + 1));
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (at + i >= text.size()) return {0xFFFD, i, Utf8::kTruncated};
    const auto byte = static_cast<uint8_t>(text[at + i]);
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {0xFFFD, i, Utf8::kInvalid};
    code_point = code_point << 6 | (byte & 0x3FU);
  }
  return {code_point, lead.length, Utf8::kValid};
}

std::string to_valid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const DecodedChar c = decode_char(text, at);
    valid += c.state == Utf8::kValid ? text.substr(at, c.length) : kReplacement;
    at += c.length;
  }
  return valid;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    const DecodedChar c = decode_char(text, at);
    if (c.state != Utf8::kValid) return false;
    at += c.length;
  }
  return true;
}

void append_utf8(std::string& text, char32_t code_point) {
  CHECK(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF));
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string_view utf8_prefix(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<uint8_t>(text[limit]) & 0xC0) == 0x80) --limit;
  return text.substr(0, limit);
}

}  // namespace lagoon
