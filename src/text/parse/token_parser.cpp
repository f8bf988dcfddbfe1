#include "text/parse/token_parser.h"

#include <algorithm>
#include <string>
#include <utility>

namespace lagoon::text::parse {
namespace {

constexpr std::string_view kAssistant = "<assistant>";

bool begins_in_reasoning(std::string_view prompt) {
  const auto last = [&](std::string_view tag) {
    const size_t at = prompt.rfind(tag);
    return at == std::string_view::npos ? size_t{0} : at + 1;
  };
  const size_t think = last(tag_text(Tag::kThink));
  return think > last(tag_text(Tag::kEndThink)) && think > last(kAssistant);
}

std::vector<std::pair<int32_t, Tag>> find_tag_tokens(const Tokenizer& tokenizer) {
  std::vector<std::pair<int32_t, Tag>> found;
  for (int i = 0; i < kTagCount; ++i) {
    const auto tag = static_cast<Tag>(i);
    if (const auto id = tokenizer.id_of(tag_text(tag))) found.emplace_back(*id, tag);
  }
  return found;
}

TagSet tags_of(const std::vector<std::pair<int32_t, Tag>>& tokens) {
  TagSet tags;
  for (const auto& [id, tag] : tokens) tags.add(tag);
  return tags;
}

}  // namespace

bool begins_in_reasoning(const Tokenizer& tokenizer, std::span<const int32_t> prompt) {
  const auto assistant = tokenizer.id_of(kAssistant);
  const auto think = tokenizer.id_of(tag_text(Tag::kThink));
  const auto end_think = tokenizer.id_of(tag_text(Tag::kEndThink));
  if (!assistant || !think || !end_think) {
    std::string text;
    for (const int32_t token : prompt) text += tokenizer.token_bytes(token);
    return begins_in_reasoning(text);
  }
  for (size_t i = prompt.size(); i-- > 0;) {
    if (prompt[i] == *think) return true;
    if (prompt[i] == *end_think || prompt[i] == *assistant) return false;
  }
  return false;
}

TokenParser::TokenParser(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                         std::shared_ptr<const ToolTypes> tools, bool skip_special_tokens)
    : tokenizer_(&tokenizer),
      skip_special_tokens_(skip_special_tokens),
      tag_tokens_(find_tag_tokens(tokenizer)),
      parser_({.in_reasoning = begins_in_reasoning(tokenizer, prompt),
               .tools = std::move(tools),
               .tokens = tags_of(tag_tokens_)}),
      detokenizer_(tokenizer, skip_special_tokens) {}

std::optional<Tag> TokenParser::tag_of(int32_t token) const {
  for (const auto& [id, tag] : tag_tokens_) {
    if (id == token) return tag;
  }
  return {};
}

void TokenParser::push(int32_t token, std::string_view text, std::vector<Event>& events) {
  const uint64_t bytes = detokenizer_.push(token).size();
  const auto tag = tag_of(token);
  uint64_t own = bytes;
  if (tag) {
    const bool silent = skip_special_tokens_ && tokenizer_->is_special(token);
    own = std::min<uint64_t>(bytes, silent ? 0 : tokenizer_->token_bytes(token).size());
    // What comes before a tag's own text was held back for an earlier token.
    if (own < bytes) shares_.push_back({.bytes = bytes - own, .tag = {}, .counts = false});
  }
  shares_.push_back({.bytes = own, .tag = tag});
  divide(text, events);
}

Ending TokenParser::finish(std::string_view tail, std::vector<Event>& events) {
  shares_.push_back({.bytes = detokenizer_.finish().size(), .tag = {}, .counts = false});
  divide(tail, events);
  // A tag that a stop string cut in two.
  parser_.text(std::exchange(begun_, {}), events);
  return parser_.finish(events);
}

void TokenParser::divide(std::string_view text, std::vector<Event>& events) {
  while (!shares_.empty()) {
    Share& share = shares_.front();
    const size_t n = std::min<uint64_t>(text.size(), share.bytes);
    const std::string_view piece = text.substr(0, n);
    text.remove_prefix(n);
    share.bytes -= n;
    if (share.bytes > 0) {
      if (share.tag) {
        begun_ += piece;
      } else {
        parser_.text(piece, events);
      }
      return;
    }
    take(share, piece, events);
    shares_.pop_front();
  }
  parser_.text(text, events);
}

// The last of a share's text has come.
void TokenParser::take(const Share& share, std::string_view text, std::vector<Event>& events) {
  const bool before = parser_.in_reasoning();
  if (share.tag) {
    begun_ += text;
    parser_.tag(*share.tag, std::exchange(begun_, {}), events);
  } else {
    parser_.text(text, events);
  }
  if (share.counts && before && parser_.in_reasoning()) ++reasoning_tokens_;
}

}  // namespace lagoon::text::parse
