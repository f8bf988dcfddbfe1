#include "api/logprobs.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "api/json.h"
#include "base/utf8.h"

namespace lagoon::api {
namespace {

constexpr float kLeast = -9999;  // vLLM's stand-in for minus infinity, which JSON cannot say

std::string number(float logprob) {
  return fmt::format("{}", logprob > kLeast ? logprob : kLeast);
}

void append(std::string& list, std::string_view item) {
  if (!list.empty()) list.push_back(',');
  list.append(item);
}

// Without the closing brace.
std::string chat_entry(const text::Tokenizer& tokenizer, const engine::TokenLogprob& token) {
  std::string bytes;
  for (const char byte : tokenizer.token_bytes(token.token)) {
    append(bytes, fmt::format("{}", static_cast<unsigned char>(byte)));
  }
  return fmt::format(R"({{"token":{},"logprob":{},"bytes":[{}])",
                     json_string(token_name(tokenizer, token.token)), number(token.logprob), bytes);
}

}  // namespace

std::string token_name(const text::Tokenizer& tokenizer, int32_t token) {
  const std::string_view bytes = tokenizer.token_bytes(token);
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string name = "bytes:";
  for (const char byte : bytes) {
    name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  }
  return name;
}

std::string chat_logprob_json(const text::Tokenizer& tokenizer, const engine::TokenLogprob& token,
                              const TokenLogprobs& top) {
  std::string list;
  for (const auto& likely : top) append(list, chat_entry(tokenizer, likely) + "}");
  return chat_entry(tokenizer, token) + ",\"top_logprobs\":[" + list + "]}";
}

std::string prompt_logprobs_json(const text::Tokenizer& tokenizer,
                                 const std::vector<TokenLogprobs>& prompt, int count) {
  std::string json;
  for (const TokenLogprobs& entry : prompt) {
    std::string tokens;
    for (size_t i = 0; i < entry.size(); ++i) {
      const auto& token = entry[i];
      // The token itself stands first, and again among the likeliest where it is one of them.
      if (i > 0 && (token.rank > count || token.token == entry[0].token)) continue;
      append(tokens, fmt::format(R"("{}":{{"logprob":{},"rank":{},"decoded_token":{}}})",
                                 token.token, number(token.logprob), token.rank,
                                 json_string(token_name(tokenizer, token.token))));
    }
    append(json, entry.empty() ? "null" : "{" + tokens + "}");
  }
  return "[" + json + "]";
}

// {"TOKEN":LOGPROB...}: the likeliest, and the token itself where it is not among them.
std::string CompletionLogprobs::top_json(const engine::TokenLogprob& token,
                                         const TokenLogprobs& top) const {
  std::vector<std::string> names;
  std::string json;
  const auto add = [&](const engine::TokenLogprob& entry) {
    std::string name = token_name(*tokenizer_, entry.token);
    // Two tokens may have one text; JSON has room for the likelier.
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    append(json, json_string(name) + ":" + number(entry.logprob));
    names.push_back(std::move(name));
  };
  for (const auto& likely : top) add(likely);
  add(token);
  return "{" + json + "}";
}

void CompletionLogprobs::add_token(int32_t token, bool has_text, const std::string& logprob,
                                   const std::string& top) {
  append(offsets_, fmt::format("{}", offset_));
  append(logprobs_, logprob);
  append(tokens_, json_string(token_name(*tokenizer_, token)));
  append(tops_, top);
  if (!has_text) return;
  // Every character is counted with its first byte, so that one of several tokens counts once.
  const std::string_view bytes = tokenizer_->token_bytes(token);
  offset_ += std::count_if(bytes.begin(), bytes.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  });
}

void CompletionLogprobs::add(const engine::TokenLogprob& token, const TokenLogprobs& top) {
  add_token(token.token, !(skip_special_ && tokenizer_->is_special(token.token)),
            number(token.logprob), top_json(token, top));
}

void CompletionLogprobs::add_prompt(const std::vector<int32_t>& ids,
                                    const std::vector<TokenLogprobs>& entries, int count,
                                    size_t hidden) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i >= entries.size() || entries[i].empty()) {
      add_token(ids[i], i >= hidden, "null", "null");
      continue;
    }
    TokenLogprobs top;
    for (size_t j = 1; j < entries[i].size(); ++j) {
      if (entries[i][j].rank <= count) top.push_back(entries[i][j]);
    }
    add_token(ids[i], i >= hidden, number(entries[i][0].logprob), top_json(entries[i][0], top));
  }
}

std::string CompletionLogprobs::take_json() {
  return fmt::format(
      R"({{"text_offset":[{}],"token_logprobs":[{}],"tokens":[{}],"top_logprobs":[{}]}})",
      std::exchange(offsets_, ""), std::exchange(logprobs_, ""), std::exchange(tokens_, ""),
      std::exchange(tops_, ""));
}

}  // namespace lagoon::api
