// Strings as Python sees them: sequences of characters (code points), held here as UTF-8. A byte
// that is not valid UTF-8 counts as one character and is kept as it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lagoon::text::jinja {

// The length in bytes of the character at the start of `text`, which is not empty: 1 to 4.
size_t character_bytes(std::string_view text);
// The character at the start of `text`. A bad byte b gives 0xDC00 + b (as Python's surrogateescape
// does), which is no character and has no properties.
char32_t first_character(std::string_view text);
bool is_valid_utf8(std::string_view text);

size_t count_characters(std::string_view text);
// Each character as a piece of `text`.
std::vector<std::string_view> split_characters(std::string_view text);
// The byte offset of character `index`; text.size() where there are not so many.
size_t byte_offset(std::string_view text, size_t index);
void append_character(std::string& text, char32_t character);

// The byte offset of `part` in `text` at or after `from`, or npos; linear in time.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);

// str.isspace() and friends for one character. is_digit includes is_decimal, is_numeric both.
bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_alphabetic(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_uppercase(char32_t c);
bool is_lowercase(char32_t c);
bool is_cased(char32_t c);

// str.upper(), lower(), title(), capitalize(), swapcase(): full mappings, "ß" to "SS".
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);
std::string to_swapped_case(std::string_view text);

// Whitespace removed from either end; `characters`, where given, instead of whitespace.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip_left(std::string_view text, std::string_view characters);
std::string_view strip_right(std::string_view text, std::string_view characters);

// str.splitlines(): \n, \r, \r\n, \v, \f, \x1c-\x1e, \x85, U+2028 and U+2029 end a line.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace lagoon::text::jinja
