#include "text/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/unicode.h"

namespace lagoon::text {
namespace {

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

// The byte of a token <0x..>. The library reads the digits as Rust reads numbers, so one with a
// plus sign is among them.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const auto low = hex_digit(token[4]);
  if (!low) return std::nullopt;
  if (token[3] == '+') return static_cast<char>(*low);
  const auto high = hex_digit(token[3]);
  if (!high) return std::nullopt;
  return static_cast<char>(*high << 4 | *low);
}

std::string strip(const StripStep& step, std::string_view text) {
  for (size_t i = 0; i < step.start && text.starts_with(step.content); ++i) {
    text.remove_prefix(step.content.size());
  }
  for (size_t i = 0; i < step.stop && text.ends_with(step.content); ++i) {
    text.remove_suffix(step.content.size());
  }
  return std::string(text);
}

}  // namespace

std::string apply_steps(std::string text, const std::vector<DecoderStep>& steps) {
  for (const DecoderStep& step : steps) {
    const auto* replace = std::get_if<ReplaceStep>(&step);
    text =
        replace != nullptr ? replace_all(text, *replace) : strip(std::get<StripStep>(step), text);
  }
  return text;
}

Decoder::Decoder(DecoderRules rules, const Vocabulary& vocabulary)
    : rules_(std::move(rules)),
      bytes_(static_cast<size_t>(vocabulary.size())),
      kinds_(bytes_.size(), Kind::kNoToken) {
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string& content = vocabulary.content(id);
    if (content.empty()) continue;
    std::string text = apply_steps(content, rules_.on_tokens);
    Kind kind = Kind::kText;
    if (rules_.bytes == DecoderRules::Bytes::kLevel) {
      text = byte_level_bytes(text);
    } else if (rules_.bytes == DecoderRules::Bytes::kFallback) {
      if (const auto byte = fallback_byte(text)) {
        kind = Kind::kByte;
        text = *byte;
      } else {
        text = apply_steps(std::move(text), rules_.on_pieces);
      }
    }
    bytes_[static_cast<size_t>(id)] = std::move(text);
    kinds_[static_cast<size_t>(id)] = kind;
  }
}

std::string_view Decoder::bytes(int32_t id) const {
  if (!has(id)) return {};
  return bytes_[static_cast<size_t>(id)];
}

std::string SteppedText::push(std::string_view piece) {
  if (const auto* step = std::get_if<ReplaceStep>(step_)) return replace(*step, piece);
  return strip(std::get<StripStep>(*step_), piece);
}

std::string SteppedText::finish() {
  waiting_ = 0;
  return std::exchange(held_, {});
}

std::string SteppedText::replace(const ReplaceStep& step, std::string_view piece) {
  held_ += piece;
  std::string text;
  size_t copied = 0;
  for (size_t at = held_.find(step.pattern); at != std::string::npos;
       at = held_.find(step.pattern, copied)) {
    text.append(held_, copied, at - copied);
    text += step.content;
    copied = at + step.pattern.size();
  }
  // The longest end that may begin a match is held back.
  const std::string_view rest = std::string_view(held_).substr(copied);
  size_t open = std::min(rest.size(), step.pattern.size() - 1);
  while (open > 0 && !step.pattern.starts_with(rest.substr(rest.size() - open))) --open;
  text += rest.substr(0, rest.size() - open);
  held_.erase(0, held_.size() - open);
  return text;
}

std::string SteppedText::strip(const StripStep& step, std::string_view piece) {
  std::string text;
  while (!piece.empty()) {
    if (!piece.starts_with(step.content)) {
      in_text_ = true;
      for (; waiting_ > 0; --waiting_) text += step.content;
      const size_t length = valid_char(piece, 0).length;
      text += piece.substr(0, length);
      piece.remove_prefix(length);
      continue;
    }
    piece.remove_prefix(step.content.size());
    if (!in_text_ && cut_ < step.start) {
      ++cut_;
      continue;
    }
    in_text_ = true;
    if (waiting_ == step.stop) {
      text += step.content;
    } else {
      ++waiting_;
    }
  }
  return text;
}

}  // namespace lagoon::text
