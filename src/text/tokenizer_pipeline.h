// The sections of a tokenizer.json around the model. null stands for none, where that is possible.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "text/decoder.h"
#include "text/json_reader.h"
#include "text/normalizer.h"
#include "text/pretokenize.h"

namespace lagoon::text {

// NFC, Replace (of a string), Prepend, and Sequence of these.
Result<Normalizer> read_normalizer(const JsonReader& reader, const simdjson::dom::element& value);

struct PreTokenizerSection {
  PreTokenizer pre_tokenizer;
  bool byte_level = false;  // it ends with ByteLevel
};
// Split, Digits, ByteLevel (as the last), and Sequence of these.
Result<PreTokenizerSection> read_pre_tokenizer(const JsonReader& reader,
                                               const simdjson::dom::element& value);

// The tokens that the post-processor puts in front of a text (ByteLevel, TemplateProcessing, and
// Sequence of these); one that does more is an error.
Result<std::vector<int32_t>> read_post_processor(const JsonReader& reader,
                                                 const simdjson::dom::element& value);

// ByteLevel, ByteFallback, Fuse, Replace (of a string), Strip, and Sequence of these.
Result<DecoderRules> read_decoder(const JsonReader& reader, const simdjson::dom::element& value);

}  // namespace lagoon::text
