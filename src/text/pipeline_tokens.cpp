// Post-processors and decoders of a tokenizer.json.
#include <fmt/core.h>
#include <simdjson.h>

#include <string>
#include <string_view>
#include <utility>

#include "text/pipeline_steps.h"
#include "text/tokenizer_pipeline.h"
#include "text/unicode.h"

namespace lagoon::text {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// Appends what a TemplateProcessing puts in front of a single text.
Result<void> read_template(const JsonReader& reader, const object& processor,
                           const std::string& where, std::vector<int32_t>& prefix) {
  LAGOON_RETURN_IF_ERROR(reader.check_settings(
      processor, where, {{"type", {}}, {"single", {}}, {"pair", {}}, {"special_tokens", {}}}));
  LAGOON_ASSIGN(const array single, reader.get_array(processor, where, "single"));
  bool text_seen = false;
  for (const element item : single) {
    if (!text_seen && item["Sequence"].error() == simdjson::SUCCESS) {
      text_seen = true;
      continue;
    }
    std::string_view token;
    if (text_seen || item["SpecialToken"]["id"].get(token) != simdjson::SUCCESS) {
      return reader.unsupported(where + "single does more than put tokens in front of the text");
    }
    array ids;
    if (processor["special_tokens"][token]["ids"].get(ids) != simdjson::SUCCESS) {
      return reader.invalid(fmt::format("{}special_tokens has no ids for {:?}", where, token));
    }
    for (const element id : ids) {
      LAGOON_ASSIGN(const int32_t checked, reader.get_id(id, token));
      prefix.push_back(checked);
    }
  }
  if (text_seen) return {};
  return reader.unsupported(where + "single does more than put tokens in front of the text");
}

Result<StripStep> read_strip(const JsonReader& reader, const object& strip,
                             const std::string& where) {
  LAGOON_RETURN_IF_ERROR(reader.check_settings(
      strip, where, {{"type", {}}, {"content", {}}, {"start", {}}, {"stop", {}}}));
  LAGOON_ASSIGN(const std::string_view content, reader.get_string(strip, where, "content"));
  if (content.empty() || valid_char(content, 0).length != content.size()) {
    return reader.invalid(fmt::format("{}content, {:?}, is not one character", where, content));
  }
  StripStep step{.content = std::string(content)};
  for (const auto& [key, count] :
       {std::pair("start", &step.start), std::pair("stop", &step.stop)}) {
    LAGOON_ASSIGN(const element value, reader.get(strip, where, key));
    uint64_t number = 0;
    if (value.get(number) != simdjson::SUCCESS) {
      return reader.invalid(fmt::format("{}{} is not a whole number", where, key));
    }
    *count = number;
  }
  return step;
}

// Sorts a decoder's steps into the places that DecoderRules has for them.
class DecoderReader {
 public:
  explicit DecoderReader(const JsonReader& reader) : reader_(reader) {}

  Result<void> read(const object& step, std::string_view type, const std::string& where) {
    using Bytes = DecoderRules::Bytes;
    if (type == "Replace") {
      LAGOON_ASSIGN(ReplaceStep replace, read_replace(reader_, step, where));
      steps().emplace_back(std::move(replace));
      return {};
    }
    if (type == "Strip") {
      LAGOON_ASSIGN(StripStep strip, read_strip(reader_, step, where));
      steps().emplace_back(std::move(strip));
      return {};
    }
    if (type != "ByteLevel" && type != "ByteFallback" && type != "Fuse") {
      return reader_.unsupported(fmt::format("{}type is {:?}", where, type));
    }
    // None of these has settings that matter to decoding.
    LAGOON_RETURN_IF_ERROR(reader_.check_settings(
        step, where,
        {{"type", {}}, {"add_prefix_space", {}}, {"trim_offsets", {}}, {"use_regex", {}}}));
    if (type == "Fuse") {
      joined_ = true;
      return {};
    }
    if (joined_ || rules_.bytes != Bytes::kNone) {
      return reader_.unsupported(
          fmt::format("{}type is {:?} after ByteLevel, ByteFallback or Fuse", where, type));
    }
    rules_.bytes = type == "ByteLevel" ? Bytes::kLevel : Bytes::kFallback;
    joined_ = type == "ByteLevel";
    return {};
  }

  DecoderRules take() { return std::move(rules_); }

 private:
  std::vector<DecoderStep>& steps() {
    if (joined_) return rules_.on_text;
    return rules_.bytes == DecoderRules::Bytes::kFallback ? rules_.on_pieces : rules_.on_tokens;
  }

  const JsonReader& reader_;
  DecoderRules rules_;
  bool joined_ = false;  // the steps from here on see the text as a whole
};

}  // namespace

Result<std::vector<int32_t>> read_post_processor(const JsonReader& reader, const element& value) {
  std::vector<int32_t> prefix;
  const auto read = [&](const object& o, std::string_view type,
                        const std::string& where) -> Result<void> {
    if (type == "ByteLevel") return {};  // changes offsets only
    if (type == "TemplateProcessing") return read_template(reader, o, where, prefix);
    return reader.unsupported(fmt::format("{}type is {:?}", where, type));
  };
  LAGOON_RETURN_IF_ERROR(for_each_step(reader, value, "post_processor", "processors", read));
  return prefix;
}

Result<DecoderRules> read_decoder(const JsonReader& reader, const element& value) {
  // Without a decoder the library puts spaces between tokens, which no model means.
  if (value.is_null()) return reader.unsupported("decoder", value);
  DecoderReader decoder(reader);
  const auto read = [&](const object& o, std::string_view type, const std::string& where) {
    return decoder.read(o, type, where);
  };
  LAGOON_RETURN_IF_ERROR(for_each_step(reader, value, "decoder", "decoders", read));
  return decoder.take();
}

}  // namespace lagoon::text
