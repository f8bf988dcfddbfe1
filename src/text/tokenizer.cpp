#include "text/tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pretokenize.h"
#include "text/tokenizer_file.h"
#include "text/vocabulary.h"
#include "text/word_cache.h"

namespace lagoon::text {
namespace {

// In a shorter text too few words recur to pay for a cache of them.
constexpr size_t kTextWithCache = 4096;  // bytes

std::vector<AddedToken> those_in_raw_text(const std::vector<AddedToken>& tokens) {
  std::vector<AddedToken> chosen;
  for (const AddedToken& token : tokens) {
    if (!token.normalized) chosen.push_back(token);
  }
  return chosen;
}

std::vector<AddedToken> those_normalized(const TokenizerFile& file) {
  std::vector<AddedToken> chosen;
  for (const AddedToken& token : file.added_tokens) {
    if (!token.normalized) continue;
    chosen.push_back(token);
    chosen.back().content = file.normalizer.apply(token.content);
  }
  return chosen;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerFile file)
      : bpe(file.model),
        raw_tokens(those_in_raw_text(file.added_tokens)),
        normalized_tokens(those_normalized(file)),
        decoder(std::move(file.decoder), file.vocabulary),
        lossless(find_lossless(file, decoder)),
        most_bytes(lossless ? find_most_bytes(file, decoder) : 0),
        normalizer(std::move(file.normalizer)),
        pre_tokenizer(std::move(file.pre_tokenizer)),
        prefix(std::move(file.prefix)),
        vocabulary(std::move(file.vocabulary)),
        special(static_cast<size_t>(vocabulary.size())) {
    for (const AddedToken& token : file.added_tokens) {
      special[static_cast<size_t>(token.id)] = token.special;
    }
  }

  static bool find_lossless(const TokenizerFile& file, const Decoder& decoder) {
    const DecoderRules& rules = decoder.rules();
    // The decoder takes the contents of added tokens for bytes where it can.
    const auto comes_back = [&](const AddedToken& token) {
      return !token.lstrip && !token.rstrip && decoder.bytes(token.id) == token.content;
    };
    return file.model.byte_level && file.normalizer.empty() && file.pre_tokenizer.keeps_text() &&
           rules.bytes == DecoderRules::Bytes::kLevel && rules.on_tokens.empty() &&
           rules.on_text.empty() &&
           std::all_of(file.added_tokens.begin(), file.added_tokens.end(), comes_back);
  }

  static size_t find_most_bytes(const TokenizerFile& file, const Decoder& decoder) {
    size_t most = 0;
    for (int32_t id = 0; id < file.vocabulary.size(); ++id) {
      most = std::max(most, decoder.bytes(id).size());
    }
    return most;
  }

  // Appends the ids of what stands between tokens found in raw text.
  void encode_part(std::string_view text, WordCache* cache, std::vector<int32_t>& ids) const {
    std::string changed;
    if (!normalizer.empty()) {
      changed = normalizer.apply(text);
      text = changed;
    }
    struct Words : WordSink {
      Words(const Bpe& model, WordCache* words, std::vector<int32_t>& out)
          : bpe(model), cache(words), ids(out) {}
      void word(std::string_view word) override {
        if (cache == nullptr) return bpe.encode(word, ids);
        cache->append(word, ids, [this](std::string_view w, auto& out) { bpe.encode(w, out); });
      }
      const Bpe& bpe;
      WordCache* cache;
      std::vector<int32_t>& ids;
    } words(bpe, cache, ids);
    normalized_tokens.split(
        text, [&](std::string_view part) { pre_tokenizer.split(part, words); },
        [&](int32_t id) { ids.push_back(id); });
  }

  Bpe bpe;
  // The Rust library looks for tokens with normalized = false in the raw text first, and for the
  // others in what is left after normalizing.
  AddedTokenFinder raw_tokens;
  AddedTokenFinder normalized_tokens;
  Decoder decoder;
  bool lossless;
  size_t most_bytes;  // see Tokenizer::most_bytes_of_a_token()
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<int32_t> prefix;
  Vocabulary vocabulary;
  std::vector<bool> special;  // by id
};

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& path) {
  LAGOON_ASSIGN(TokenizerFile file, read_tokenizer_file(path));
  return make(std::make_unique<Impl>(std::move(file)));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::parse(std::string_view json,
                                                    const std::string& name) {
  LAGOON_ASSIGN(TokenizerFile file, parse_tokenizer_file(json, name));
  return make(std::make_unique<Impl>(std::move(file)));
}

std::unique_ptr<Tokenizer> Tokenizer::make(std::unique_ptr<Impl> impl) {
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer());
  tokenizer->impl_ = std::move(impl);
  return tokenizer;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = to_valid_utf8(text);
    text = repaired;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  std::optional<WordCache> cache;
  if (text.size() >= kTextWithCache) cache.emplace();
  impl_->raw_tokens.split(
      text,
      [&](std::string_view part) { impl_->encode_part(part, cache ? &*cache : nullptr, ids); },
      [&](int32_t id) { ids.push_back(id); });
  return ids;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  return impl_->decoder.bytes(id);
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::id_of(std::string_view content) const {
  return impl_->vocabulary.find(content);
}

int32_t Tokenizer::vocab_size() const {
  return impl_->vocabulary.size();
}

size_t Tokenizer::most_bytes_of_a_token() const {
  return impl_->most_bytes;
}

std::span<const int32_t> Tokenizer::prefix() const {
  return impl_->prefix;
}

bool Tokenizer::is_lossless() const {
  return impl_->lossless;
}

void Tokenizer::add_prefix(std::vector<int32_t>& ids) const {
  const auto& prefix = impl_->prefix;
  const bool there =
      ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
  if (!there) ids.insert(ids.begin(), prefix.begin(), prefix.end());
}

const Decoder& Tokenizer::decoder() const {
  return impl_->decoder;
}

}  // namespace lagoon::text
