// A tokenizer.json, and behind its last zero byte a text. What is accepted must encode the text to
// tokens that there are, decode them to UTF-8, and give the text back where it says that it does.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

namespace {

// A pattern of one's own making may take time quadratic in the text.
constexpr size_t kMostText = 1000;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lagoon;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.rfind('\0'), size);
  const std::string_view text = input.substr(std::min(end + 1, size)).substr(0, kMostText);
  const auto loaded = text::Tokenizer::parse(input.substr(0, end), "tokenizer.json");
  if (!loaded.ok()) {
    CHECK(loaded.error().message.starts_with("tokenizer.json: "));
    return 0;
  }
  const text::Tokenizer& tokenizer = **loaded;
  std::vector<int32_t> ids = tokenizer.encode(text);
  text::Detokenizer detokenizer(tokenizer, false);
  std::string decoded;
  for (const int32_t id : ids) {
    CHECK(tokenizer.decoder().has(id));
    const std::string piece = detokenizer.push(id);
    CHECK(is_valid_utf8(piece));
    decoded += piece;
  }
  decoded += detokenizer.finish();
  CHECK(is_valid_utf8(decoded));
  if (tokenizer.is_lossless()) CHECK(decoded == to_valid_utf8(text));
  const size_t most = tokenizer.most_bytes_of_a_token();
  if (most > 0) CHECK(ids.size() * most >= to_valid_utf8(text).size());
  tokenizer.add_prefix(ids);
  return 0;
}
