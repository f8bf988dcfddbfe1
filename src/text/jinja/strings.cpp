#include "text/jinja/strings.h"

#include <algorithm>
#include <limits>

#include "text/jinja/unicode.h"

namespace lagoon::text::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

size_t limit_of(int64_t most) {
  return most < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(most);
}

// The bytes up to the first whitespace.
size_t word_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && !is_space(first_character(text.substr(at)))) {
    at += character_bytes(text.substr(at));
  }
  return at;
}

}  // namespace

void append_text(Budget& budget, std::string& out, std::string_view piece) {
  if (out.size() + piece.size() > budget.max_text_bytes())
    budget.charge_text(out.size() + piece.size());
  budget.charge_text(piece.size());
  out += piece;
}

std::vector<std::string_view> split_space(std::string_view text, int64_t most) {
  const size_t limit = limit_of(most);
  std::vector<std::string_view> words;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    if (words.size() == limit) {
      words.push_back(strip_right(text));
      break;
    }
    const size_t bytes = word_bytes(text);
    words.push_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return words;
}

std::vector<std::string_view> split_space_right(std::string_view text, int64_t most) {
  std::vector<std::string_view> words = split_space(text, -1);
  const size_t limit = limit_of(most);
  if (words.size() <= limit || words.empty()) return words;
  // What is left of the last `limit` words stays in one piece.
  const size_t joined = words.size() - limit;
  const char* begin = text.data();  // whitespace at the start belongs to it
  const char* end = words[joined - 1].data() + words[joined - 1].size();
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(joined));
  words.insert(words.begin(), std::string_view(begin, static_cast<size_t>(end - begin)));
  return words;
}

std::vector<std::string_view> split_text(std::string_view text, std::string_view separator,
                                         int64_t most) {
  const size_t limit = limit_of(most);
  std::vector<std::string_view> pieces;
  size_t start = 0;
  while (pieces.size() < limit) {
    const size_t at = find_text(text, separator, start);
    if (at == kNone) break;
    pieces.push_back(text.substr(start, at - start));
    start = at + separator.size();
  }
  pieces.push_back(text.substr(start));
  return pieces;
}

std::vector<std::string_view> split_text_right(std::string_view text, std::string_view separator,
                                               int64_t most) {
  const size_t limit = limit_of(most);
  std::vector<std::string_view> pieces;
  while (pieces.size() < limit) {
    const size_t at = find_text_last(text, separator);
    if (at == kNone) break;
    pieces.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  pieces.push_back(text);
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

size_t find_text_last(std::string_view text, std::string_view part) {
  return text.rfind(part);
}

std::string replace_text(Budget& budget, std::string_view text, std::string_view from,
                         std::string_view to, int64_t most) {
  const size_t limit = limit_of(most);
  std::string out;
  if (from.empty()) {
    size_t done = 0;
    for (const std::string_view piece : split_characters(text)) {
      if (done++ < limit) append_text(budget, out, to);
      append_text(budget, out, piece);
    }
    if (done < limit) append_text(budget, out, to);
    return out;
  }
  const auto pieces = split_text(text, from, most);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0) append_text(budget, out, to);
    append_text(budget, out, pieces[i]);
  }
  return out;
}

}  // namespace lagoon::text::jinja
