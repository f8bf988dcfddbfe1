// The byte-level alphabet: each byte is written as one printable character, so that any bytes can
// stand in a vocabulary of strings. Bytes 21..7E, A1..AC and AE..FF are the characters of the same
// number; the other 68, in order, are U+0100 and up (GPT-2's bytes_to_unicode).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace lagoon::text {

// The character of each byte, in UTF-8.
const std::array<std::string, 256>& byte_level_alphabet();

// The bytes a text of the alphabet's characters stands for; nothing where another is among them.
std::optional<std::string> byte_level_word(std::string_view content);

// The bytes a token's content stands for. A content with any character outside the alphabet stands
// for itself, as in the Rust library's decoder.
std::string byte_level_bytes(std::string_view content);

}  // namespace lagoon::text
