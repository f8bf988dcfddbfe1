#include "text/tokenizer_file.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "text/byte_level.h"
#include "text/json_reader.h"
#include "text/tokenizer_pipeline.h"

namespace lagoon::text {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// Where a text is searched for added tokens, each place costs as much as the longest.
constexpr size_t kLongestAddedToken = 1024;

// Tables are as long as the highest id, so ids must be of the order of the number of tokens.
constexpr size_t kMostGaps = 4096;

Result<void> read_vocabulary(const JsonReader& reader, const object& tokens,
                             Vocabulary& vocabulary) {
  vocabulary.reserve(tokens.size());
  const size_t id_limit = 2 * tokens.size() + kMostGaps;
  for (const auto field : tokens) {
    if (field.key.empty()) return reader.invalid("model.vocab has an empty token");
    LAGOON_ASSIGN(const int32_t id, reader.get_id(field.value, field.key));
    if (static_cast<size_t>(id) >= id_limit) {
      return reader.unsupported(
          fmt::format("model.vocab gives the id {} to {:?} while it has {} tokens", id,
                      shortened(std::string(field.key)), tokens.size()));
    }
    switch (vocabulary.add(field.key, id)) {
      case Vocabulary::Added::kNew:
        break;
      case Vocabulary::Added::kContentTaken:
        return reader.invalid(
            fmt::format("model.vocab has the token {:?} twice", shortened(std::string(field.key))));
      case Vocabulary::Added::kIdTaken:
        return reader.invalid(fmt::format("model.vocab gives the id {} to the tokens {:?} and {:?}",
                                          id, shortened(vocabulary.content(id)),
                                          shortened(std::string(field.key))));
    }
  }
  return {};
}

// The tokens of the bytes, and what stands in a word for each token.
Result<void> read_byte_level_words(const JsonReader& reader, const Vocabulary& vocabulary,
                                   BpeModel& model) {
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string& character = byte_level_alphabet()[byte];
    const std::optional<int32_t> id = vocabulary.find(character);
    if (!id) {
      return reader.invalid(
          fmt::format("model.vocab has no token {:?} for the byte {:#04x}, so it is no byte-level "
                      "vocabulary",
                      character, byte));
    }
    model.byte_ids[byte] = *id;
  }
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    auto word = byte_level_word(vocabulary.content(id));
    if (word && !word->empty()) model.words.emplace_back(std::move(*word), id);
  }
  return {};
}

// The same for a vocabulary of characters; none of these may be lost.
Result<void> read_character_words(const JsonReader& reader, const object& settings,
                                  const Vocabulary& vocabulary, BpeModel& model) {
  bool all_bytes = model.byte_fallback;
  for (size_t byte = 0; byte < 256; ++byte) {
    model.byte_ids[byte] =
        vocabulary.find(fmt::format("<0x{:02X}>", byte)).value_or(BpeModel::kNone);
    all_bytes = all_bytes && model.byte_ids[byte] != BpeModel::kNone;
  }
  std::string_view unknown;
  if (settings["unk_token"].get(unknown) == simdjson::SUCCESS) {
    const std::optional<int32_t> id = vocabulary.find(unknown);
    if (!id) {
      return reader.invalid(
          fmt::format("model.unk_token is {:?}, which model.vocab lacks", unknown));
    }
    model.unknown = *id;
  } else if (!all_bytes) {
    return reader.unsupported(
        "model has neither an unk_token nor byte_fallback with all tokens <0x00> to <0xFF>, so "
        "that characters would be lost");
  }
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string& content = vocabulary.content(id);
    if (!content.empty()) model.words.emplace_back(content, id);
  }
  return {};
}

// A merge is ["a", "b"], or "a b" where no token has a space.
std::optional<std::pair<std::string_view, std::string_view>> merge_parts(const element& merge) {
  std::string_view left;
  std::string_view right;
  if (merge.get(left) == simdjson::SUCCESS) {
    const size_t space = left.find(' ');
    if (space == std::string_view::npos || left.find(' ', space + 1) != std::string_view::npos) {
      return std::nullopt;
    }
    return std::pair{left.substr(0, space), left.substr(space + 1)};
  }
  array parts;
  if (merge.get(parts) != simdjson::SUCCESS || parts.size() != 2 ||
      parts.at(0).get(left) != simdjson::SUCCESS || parts.at(1).get(right) != simdjson::SUCCESS) {
    return std::nullopt;
  }
  return std::pair{left, right};
}

Result<std::vector<BpeModel::Merge>> read_merges(const JsonReader& reader, const array& list,
                                                 const Vocabulary& vocabulary) {
  std::vector<BpeModel::Merge> merges;
  merges.reserve(list.size());
  std::string joined;
  size_t index = 0;
  for (const element item : list) {
    const auto parts = merge_parts(item);
    if (!parts) {
      return reader.invalid(fmt::format("model.merges[{}] is {}, not two tokens", index,
                                        shortened(simdjson::minify(item))));
    }
    joined = parts->first;
    joined += parts->second;
    std::array<int32_t, 3> ids{};
    size_t count = 0;
    for (const std::string_view token : {parts->first, parts->second, std::string_view(joined)}) {
      const std::optional<int32_t> id = vocabulary.find(token);
      if (!id) {
        return reader.invalid(
            fmt::format("model.merges[{}] needs the token {:?}, which model.vocab lacks", index,
                        shortened(std::string(token))));
      }
      ids[count++] = *id;
    }
    merges.push_back({.left = ids[0], .right = ids[1], .result = ids[2]});
    ++index;
  }
  return merges;
}

Result<void> read_model(const JsonReader& reader, const object& model, bool byte_level,
                        TokenizerFile& file) {
  LAGOON_RETURN_IF_ERROR(reader.check_settings(model, "model.",
                                               {{"type", {R"("BPE")"}},
                                                {"vocab", {}},
                                                {"merges", {}},
                                                {"dropout", {kMissing, "null", "0", "0.0"}},
                                                {"unk_token", {}},
                                                {"fuse_unk", optional_flag_values()},
                                                {"continuing_subword_prefix", no_text_values()},
                                                {"end_of_word_suffix", no_text_values()},
                                                {"byte_fallback", optional_flag_values()},
                                                {"ignore_merges", optional_flag_values()}}));
  const auto flag = [&](std::string_view key) {
    bool value = false;
    return model[key].get(value) == simdjson::SUCCESS && value;
  };
  file.model.byte_level = byte_level;
  file.model.ignore_merges = flag("ignore_merges");
  file.model.byte_fallback = flag("byte_fallback");
  file.model.fuse_unknown = flag("fuse_unk");
  LAGOON_ASSIGN(const object tokens, reader.get_object(model, "model.", "vocab"));
  LAGOON_RETURN_IF_ERROR(read_vocabulary(reader, tokens, file.vocabulary));
  // Where every byte has a token, none is unknown.
  LAGOON_RETURN_IF_ERROR(byte_level
                             ? read_byte_level_words(reader, file.vocabulary, file.model)
                             : read_character_words(reader, model, file.vocabulary, file.model));
  LAGOON_ASSIGN(const array merges, reader.get_array(model, "model.", "merges"));
  LAGOON_ASSIGN(file.model.merges, read_merges(reader, merges, file.vocabulary));
  return {};
}

Result<AddedToken> read_added_token(const JsonReader& reader, const element& item) {
  object token;
  if (item.get(token) != simdjson::SUCCESS) {
    return reader.invalid("added_tokens holds something that is not an object");
  }
  AddedToken added;
  LAGOON_ASSIGN(added.content, reader.get_string(token, "added_tokens[].", "content"));
  if (added.content.empty()) return reader.invalid("added_tokens has an empty token");
  const std::string where = fmt::format("added token {:?}: ", shortened(added.content));
  if (added.content.size() > kLongestAddedToken) {
    return reader.unsupported(
        fmt::format("{}content has more than {} bytes", where, kLongestAddedToken));
  }
  LAGOON_RETURN_IF_ERROR(reader.check_settings(token, where,
                                               {{"id", {}},
                                                {"content", {}},
                                                {"single_word", flag_values()},
                                                {"lstrip", flag_values()},
                                                {"rstrip", flag_values()},
                                                {"normalized", flag_values()},
                                                {"special", flag_values()}}));
  for (const auto& [key, flag] :
       {std::pair("single_word", &added.single_word), std::pair("lstrip", &added.lstrip),
        std::pair("rstrip", &added.rstrip), std::pair("normalized", &added.normalized),
        std::pair("special", &added.special)}) {
    LAGOON_ASSIGN(*flag, reader.get_flag(token, where, key));
  }
  LAGOON_ASSIGN(const element id, reader.get(token, where, "id"));
  LAGOON_ASSIGN(added.id, reader.get_id(id, added.content));
  return added;
}

// The library ignores the id that the file gives to a token which model.vocab lacks: it takes the
// first one behind all others. A file that counts differently is refused.
class AddedIds {
 public:
  explicit AddedIds(size_t model_tokens) : model_tokens_(static_cast<int32_t>(model_tokens)) {}

  int32_t next() const { return highest_ >= model_tokens_ ? highest_ + 1 : model_tokens_; }
  void add(int32_t id) { highest_ = std::max(highest_, id); }

 private:
  int32_t model_tokens_;
  int32_t highest_ = -1;
};

Result<void> read_added_tokens(const JsonReader& reader, const array& list, size_t model_tokens,
                               TokenizerFile& file) {
  AddedIds ids(model_tokens);
  std::vector<bool> seen;
  for (const element item : list) {
    LAGOON_ASSIGN(AddedToken added, read_added_token(reader, item));
    const std::string name = shortened(added.content);
    const int32_t expected = file.vocabulary.find(added.content).value_or(ids.next());
    const auto index = static_cast<size_t>(added.id);
    if (index < seen.size() && seen[index] && file.vocabulary.content(added.id) == added.content) {
      return reader.invalid(fmt::format("added_tokens has the token {:?} twice", name));
    }
    if (added.id != expected) {
      return reader.invalid(
          fmt::format("added_tokens has the token {:?} with the id {}, where {} is its id in "
                      "model.vocab or the next free one",
                      name, added.id, expected));
    }
    ids.add(added.id);
    if (!file.vocabulary.find(added.content) &&
        file.vocabulary.add(added.content, added.id) != Vocabulary::Added::kNew) {
      return reader.invalid(fmt::format(
          "added_tokens has the token {:?} with the id {} of another token", name, added.id));
    }
    if (seen.size() <= index) seen.resize(index + 1);
    seen[index] = true;
    file.added_tokens.push_back(std::move(added));
  }
  return {};
}

// What is looked for in normalized text is the normalized content.
Result<void> check_normalized_tokens(const JsonReader& reader, const TokenizerFile& file) {
  StringTable contents;
  for (const AddedToken& token : file.added_tokens) {
    if (!token.normalized) continue;
    const std::string content = file.normalizer.apply(token.content);
    if (!content.empty() && contents.insert(content, token.id)) continue;
    return reader.unsupported(
        fmt::format("added token {:?} is {:?} when normalized, as another is, or empty",
                    shortened(token.content), shortened(content)));
  }
  return {};
}

Result<TokenizerFile> read_root(const JsonReader& reader, const object& root) {
  LAGOON_RETURN_IF_ERROR(reader.check_settings(root, "",
                                               {{"version", {}},
                                                {"truncation", {kMissing, "null"}},
                                                {"padding", {kMissing, "null"}},
                                                {"added_tokens", {}},
                                                {"normalizer", {}},
                                                {"pre_tokenizer", {}},
                                                {"post_processor", {}},
                                                {"decoder", {}},
                                                {"model", {}}}));
  TokenizerFile file;
  LAGOON_ASSIGN(const object model, reader.get_object(root, "", "model"));
  element value;
  if (root["normalizer"].get(value) == simdjson::SUCCESS) {
    LAGOON_ASSIGN(file.normalizer, read_normalizer(reader, value));
  }
  LAGOON_ASSIGN(value, reader.get(root, "", "pre_tokenizer"));
  LAGOON_ASSIGN(PreTokenizerSection section, read_pre_tokenizer(reader, value));
  file.pre_tokenizer = std::move(section.pre_tokenizer);
  LAGOON_ASSIGN(value, reader.get(root, "", "decoder"));
  LAGOON_ASSIGN(file.decoder, read_decoder(reader, value));
  LAGOON_RETURN_IF_ERROR(read_model(reader, model, section.byte_level, file));
  const size_t model_tokens = model["vocab"].get_object().value_unsafe().size();
  LAGOON_ASSIGN(const array added_tokens, reader.get_array(root, "", "added_tokens"));
  LAGOON_RETURN_IF_ERROR(read_added_tokens(reader, added_tokens, model_tokens, file));
  LAGOON_RETURN_IF_ERROR(check_normalized_tokens(reader, file));
  if (root["post_processor"].get(value) == simdjson::SUCCESS) {
    LAGOON_ASSIGN(file.prefix, read_post_processor(reader, value));
  }
  for (const int32_t id : file.prefix) {
    if (!file.vocabulary.content(id).empty()) continue;
    return reader.invalid(fmt::format("post_processor names the id {}, which no token has", id));
  }
  return file;
}

Result<TokenizerFile> read_content(const JsonReader& reader, const simdjson::padded_string& json) {
  const std::string_view text = json;
  if (text.empty()) return reader.invalid("the file is empty");
  if (text.starts_with("version https://git-lfs")) {
    return reader.invalid(
        "is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder or download "
        "the file");
  }
  simdjson::dom::parser parser;
  element document;
  if (const auto error = parser.parse(json).get(document)) {
    return reader.invalid(
        fmt::format("cannot be read as JSON ({})", simdjson::error_message(error)));
  }
  object root;
  if (document.get(root) != simdjson::SUCCESS) return reader.invalid("the JSON is not an object");
  return read_root(reader, root);
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view json, const std::string& name) {
  return read_content(JsonReader(name), simdjson::padded_string(json));
}

Result<TokenizerFile> read_tokenizer_file(const std::string& path) {
  const JsonReader reader(path);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("{}: no such file; a model directory needs its tokenizer.json.", path)};
  }
  simdjson::padded_string content;
  if (const auto error = simdjson::padded_string::load(path).get(content)) {
    return reader.invalid(fmt::format("cannot be read ({})", simdjson::error_message(error)));
  }
  return read_content(reader, content);
}

}  // namespace lagoon::text
