#include "text/added_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "text/unicode.h"

namespace lagoon::text {
namespace {

size_t skip_space_forward(std::string_view text, size_t at) {
  while (at < text.size()) {
    const ValidChar c = valid_char(text, at);
    if (!is_space(c.code_point)) break;
    at += c.length;
  }
  return at;
}

// `limit` is at a character's border, and so is `at`.
size_t skip_space_backward(std::string_view text, size_t at, size_t limit) {
  while (at > limit) {
    const size_t begin = previous_char(text, at);
    if (!is_space(valid_char(text, begin).code_point)) break;
    at = begin;
  }
  return at;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const auto is_word = [&](size_t at) {
    return is_word_character(valid_char(text, at).code_point);
  };
  return (begin == 0 || !is_word(previous_char(text, begin))) &&
         (end == text.size() || !is_word(end));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens) : nodes_(1) {
  for (const AddedToken& token : tokens) {
    CHECK(!token.content.empty());
    uint32_t at = 0;
    for (const char c : token.content) {
      const auto byte = static_cast<unsigned char>(c);
      if (const uint32_t* child = child_of(at, byte)) {
        at = *child;
        continue;
      }
      const auto added = static_cast<uint32_t>(nodes_.size());
      auto& children = nodes_[at].children;
      const std::pair<unsigned char, uint32_t> entry{byte, added};
      children.insert(std::upper_bound(children.begin(), children.end(), entry), entry);
      nodes_.emplace_back();
      at = added;
    }
    nodes_[at].token = static_cast<int32_t>(tokens_.size());
    tokens_.push_back({.id = token.id,
                       .single_word = token.single_word,
                       .lstrip = token.lstrip,
                       .rstrip = token.rstrip});
    begins_token_[static_cast<unsigned char>(token.content[0])] = true;
  }
}

const uint32_t* AddedTokenFinder::child_of(uint32_t node, unsigned char byte) const {
  const auto& children = nodes_[node].children;
  const auto child =
      std::lower_bound(children.begin(), children.end(), byte,
                       [](const auto& entry, unsigned char b) { return entry.first < b; });
  return child != children.end() && child->first == byte ? &child->second : nullptr;
}

std::pair<int32_t, size_t> AddedTokenFinder::longest_at(std::string_view text, size_t at) const {
  std::pair<int32_t, size_t> longest{-1, 0};
  uint32_t node = 0;
  for (size_t end = at; end < text.size();) {
    const uint32_t* child = child_of(node, static_cast<unsigned char>(text[end]));
    if (child == nullptr) break;
    node = *child;
    ++end;
    if (nodes_[node].token >= 0) longest = {nodes_[node].token, end - at};
  }
  return longest;
}

AddedTokenFinder::Match AddedTokenFinder::next(std::string_view text, Cursor& cursor) const {
  while (!tokens_.empty()) {
    size_t begin = cursor.at;
    while (begin < text.size() && !begins_token_[static_cast<unsigned char>(text[begin])]) ++begin;
    cursor.at = begin;
    if (begin == text.size()) break;
    const auto [index, length] = longest_at(text, begin);
    if (index < 0) {
      ++cursor.at;
      continue;
    }
    const Token& token = tokens_[static_cast<size_t>(index)];
    size_t end = begin + length;
    cursor.at = end;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.lstrip) begin = skip_space_backward(text, begin, std::min(begin, cursor.taken));
    if (token.rstrip) {
      if (end < cursor.space_begin || end > cursor.space_end) {
        cursor.space_begin = end;
        cursor.space_end = skip_space_forward(text, end);
      }
      end = cursor.space_end;
    }
    return {.begin = begin, .end = end, .id = token.id};
  }
  return {.begin = text.size(), .end = text.size(), .id = -1};
}

}  // namespace lagoon::text
