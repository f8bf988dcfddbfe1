// What a tokenizer.json holds, checked. Only what Lagoon computes exactly as the Rust tokenizers
// library does is accepted: a BPE model, and around it what text/tokenizer_pipeline.h reads.
// Anything else is an error that names it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pretokenize.h"
#include "text/vocabulary.h"

namespace lagoon::text {

struct TokenizerFile {
  Vocabulary vocabulary;  // the added tokens too
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  DecoderRules decoder;
  std::vector<int32_t> prefix;  // what the post-processor puts in front of a text
};

Result<TokenizerFile> read_tokenizer_file(const std::string& path);
// The same from the file's content; `name` stands in errors.
Result<TokenizerFile> parse_tokenizer_file(std::string_view json, const std::string& name);

}  // namespace lagoon::text
