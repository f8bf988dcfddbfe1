#include "text/jinja/unicode.h"

#include <cstring>

#include <algorithm>
#include <iterator>

namespace lagoon::text::jinja {
namespace {

struct Range {
  char32_t first, last;
};
// Every `stride`-th character of first..last becomes itself plus `delta`.
struct Run {
  char32_t first, last;
  int stride, delta;
};
// A character that becomes several.
struct Special {
  char32_t from;
  const char* to;
};

#include "text/jinja/unicode_tables.inc"

constexpr char32_t kBadByte = 0xDC00;

template <size_t N>
bool in_ranges(const Range (&ranges)[N], char32_t c) {
  const auto* after = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                       [](char32_t x, const Range& r) { return x < r.first; });
  return after != std::begin(ranges) && c <= std::prev(after)->last;
}

template <size_t R, size_t S>
void append_mapped(std::string& out, std::string_view piece, const Run (&runs)[R],
                   const Special (&specials)[S]) {
  const char32_t c = first_character(piece);
  for (const Special& special : specials) {
    if (special.from == c) {
      out += special.to;
      return;
    }
  }
  const auto* run = std::upper_bound(std::begin(runs), std::end(runs), c,
                                     [](char32_t x, const Run& r) { return x < r.first; });
  if (run != std::begin(runs)) {
    --run;
    if (c <= run->last && (c - run->first) % static_cast<char32_t>(run->stride) == 0) {
      append_character(out, static_cast<char32_t>(static_cast<int64_t>(c) + run->delta));
      return;
    }
  }
  out += piece;
}

void append_upper(std::string& out, std::string_view piece) {
  append_mapped(out, piece, kToUpper, kToUpperSpecial);
}

void append_title(std::string& out, std::string_view piece) {
  append_mapped(out, piece, kToTitle, kToTitleSpecial);
}

void append_lower(std::string& out, std::string_view piece) {
  append_mapped(out, piece, kToLower, kToLowerSpecial);
}

// A capital sigma at the end of a word becomes the final form.
void append_lower_at(std::string& out, const std::vector<std::string_view>& pieces, size_t i) {
  constexpr char32_t kSigma = 0x3A3;
  constexpr char32_t kFinalSigma = 0x3C2;
  if (first_character(pieces[i]) != kSigma) {
    append_lower(out, pieces[i]);
    return;
  }
  const bool after_letter = i > 0 && is_cased(first_character(pieces[i - 1]));
  const bool before_letter = i + 1 < pieces.size() && is_cased(first_character(pieces[i + 1]));
  append_character(out, after_letter && !before_letter ? kFinalSigma : char32_t{0x3C3});
}

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool contains_character(std::string_view characters, std::string_view piece) {
  while (!characters.empty()) {
    const size_t bytes = character_bytes(characters);
    if (characters.substr(0, bytes) == piece) return true;
    characters.remove_prefix(bytes);
  }
  return false;
}

// The last character of `text`, which is not empty.
std::string_view last_piece(std::string_view text) {
  for (size_t bytes = std::min<size_t>(4, text.size()); bytes > 1; --bytes) {
    const std::string_view piece = text.substr(text.size() - bytes);
    if (character_bytes(piece) == bytes) return piece;
  }
  return text.substr(text.size() - 1);
}

template <typename Drop>
std::string_view strip_left_if(std::string_view text, Drop drop) {
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    if (!drop(text.substr(0, bytes))) break;
    text.remove_prefix(bytes);
  }
  return text;
}

template <typename Drop>
std::string_view strip_right_if(std::string_view text, Drop drop) {
  while (!text.empty()) {
    const std::string_view piece = last_piece(text);
    if (!drop(piece)) break;
    text.remove_suffix(piece.size());
  }
  return text;
}

bool is_space_piece(std::string_view piece) {
  return is_space(first_character(piece));
}

}  // namespace

size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0xC2 || lead > 0xF4) return 1;
  const size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < bytes) return 1;
  for (size_t i = 1; i < bytes; ++i) {
    if (!is_continuation(text[i])) return 1;
  }
  // Overlong forms, surrogates and what lies beyond U+10FFFF are not UTF-8.
  const auto second = static_cast<unsigned char>(text[1]);
  if (lead == 0xE0 && second < 0xA0) return 1;
  if (lead == 0xED && second > 0x9F) return 1;
  if (lead == 0xF0 && second < 0x90) return 1;
  if (lead == 0xF4 && second > 0x8F) return 1;
  return bytes;
}

char32_t first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return lead;
  const size_t bytes = character_bytes(text);
  if (bytes == 1) return kBadByte + lead;
  char32_t c = lead & (0xFF >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) c = (c << 6) | (static_cast<unsigned char>(text[i]) & 0x3F);
  return c;
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    if (bytes == 1 && static_cast<unsigned char>(text[0]) >= 0x80) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += character_bytes(text.substr(at))) ++count;
  return count;
}

std::vector<std::string_view> split_characters(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    pieces.push_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return pieces;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += character_bytes(text.substr(at));
  return at;
}

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

void append_character(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else if (c < 0x800) {
    text += static_cast<char>(0xC0 | (c >> 6));
    text += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    text += static_cast<char>(0xE0 | (c >> 12));
    text += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    text += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | (c >> 18));
    text += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    text += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    text += static_cast<char>(0x80 | (c & 0x3F));
  }
}

bool is_space(char32_t c) {
  return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F) || c == 0x85 ||
         c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  return in_ranges(kPrintable, c);
}
bool is_alphabetic(char32_t c) {
  return in_ranges(kAlphabetic, c);
}
bool is_decimal(char32_t c) {
  return in_ranges(kDecimal, c);
}
bool is_digit(char32_t c) {
  return is_decimal(c) || in_ranges(kDigit, c);
}
bool is_numeric(char32_t c) {
  return is_digit(c) || in_ranges(kNumeric, c);
}
bool is_uppercase(char32_t c) {
  return in_ranges(kUppercase, c);
}
bool is_lowercase(char32_t c) {
  return in_ranges(kLowercase, c);
}
bool is_cased(char32_t c) {
  return is_uppercase(c) || is_lowercase(c) || in_ranges(kTitlecase, c);
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const std::string_view piece : split_characters(text)) append_upper(out, piece);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto pieces = split_characters(text);
  for (size_t i = 0; i < pieces.size(); ++i) append_lower_at(out, pieces, i);
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto pieces = split_characters(text);
  bool in_word = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (in_word) {
      append_lower_at(out, pieces, i);
    } else {
      append_title(out, pieces[i]);
    }
    in_word = is_cased(first_character(pieces[i]));
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto pieces = split_characters(text);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i == 0) {
      append_title(out, pieces[i]);
    } else {
      append_lower_at(out, pieces, i);
    }
  }
  return out;
}

std::string to_swapped_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto pieces = split_characters(text);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const char32_t c = first_character(pieces[i]);
    if (is_uppercase(c)) {
      append_lower_at(out, pieces, i);
    } else if (is_lowercase(c)) {
      append_upper(out, pieces[i]);
    } else {
      out += pieces[i];
    }
  }
  return out;
}

std::string_view strip_left(std::string_view text) {
  return strip_left_if(text, is_space_piece);
}
std::string_view strip_right(std::string_view text) {
  return strip_right_if(text, is_space_piece);
}

std::string_view strip_left(std::string_view text, std::string_view characters) {
  return strip_left_if(text, [&](std::string_view p) { return contains_character(characters, p); });
}

std::string_view strip_right(std::string_view text, std::string_view characters) {
  return strip_right_if(text,
                        [&](std::string_view p) { return contains_character(characters, p); });
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    size_t bytes = character_bytes(text.substr(at));
    if (!ends_line(first_character(text.substr(at)))) {
      at += bytes;
      continue;
    }
    if (text.substr(at, 2) == "\r\n") bytes = 2;
    lines.push_back(text.substr(start, at - start + (keep_ends ? bytes : 0)));
    at += bytes;
    start = at;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace lagoon::text::jinja
