// Work on whole strings that methods and filters share: splitting, replacing, appending.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/budget.h"

namespace lagoon::text::jinja {

// Appends within the limits of `budget`.
void append_text(Budget& budget, std::string& out, std::string_view piece);

// str.split() and rsplit(): at whitespace or at `separator` (not empty), at most `most` times
// (negative: as often as it is there).
std::vector<std::string_view> split_space(std::string_view text, int64_t most);
std::vector<std::string_view> split_space_right(std::string_view text, int64_t most);
std::vector<std::string_view> split_text(std::string_view text, std::string_view separator,
                                         int64_t most);
std::vector<std::string_view> split_text_right(std::string_view text, std::string_view separator,
                                               int64_t most);

// The last place of `part` in `text`, in bytes, or npos.
size_t find_text_last(std::string_view text, std::string_view part);

// str.replace(): at most `most` times (negative: everywhere). An empty `from` is found before every
// character and at the end.
std::string replace_text(Budget& budget, std::string_view text, std::string_view from,
                         std::string_view to, int64_t most);

}  // namespace lagoon::text::jinja
