#include "base/utf8.h"
#include "text/tokenizer.h"

namespace lagoon::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {
  for (const DecoderStep& step : tokenizer.decoder().rules().on_text) on_text_.emplace_back(step);
}

std::string Detokenizer::push(int32_t id) {
  const Decoder& decoder = tokenizer_->decoder();
  if (!decoder.has(id) || (skip_special_ && tokenizer_->is_special(id))) return {};
  std::string piece;
  switch (decoder.rules().bytes) {
    case DecoderRules::Bytes::kNone:
      piece = decoder.bytes(id);
      break;
    case DecoderRules::Bytes::kLevel:
      utf8_.push(decoder.bytes(id), piece);
      break;
    case DecoderRules::Bytes::kFallback:
      piece = push_fallback(id);
      break;
  }
  for (SteppedText& step : on_text_) piece = step.push(piece);
  return piece;
}

std::string Detokenizer::replacement() const {
  return apply_steps(std::string(kReplacement), tokenizer_->decoder().rules().on_pieces);
}

// A run that is not UTF-8 as a whole is one U+FFFD for each byte, the good ones too.
std::string Detokenizer::push_fallback(int32_t id) {
  const Decoder& decoder = tokenizer_->decoder();
  if (!decoder.is_byte(id)) {
    std::string piece = end_run();
    piece += decoder.bytes(id);
    return piece;
  }
  if (broken_) return replacement();
  run_ += decoder.bytes(id);
  while (checked_ < run_.size()) {
    const DecodedChar c = decode_char(run_, checked_);
    if (c.state == Utf8::kTruncated) return {};
    if (c.state == Utf8::kInvalid) {
      checked_ = run_.size() + 1;  // no part of it will do
      std::string piece = end_run();
      broken_ = true;
      return piece;
    }
    checked_ += c.length;
  }
  return {};
}

std::string Detokenizer::end_run() {
  std::string piece;
  if (checked_ == run_.size() && !run_.empty()) {
    piece = apply_steps(run_, tokenizer_->decoder().rules().on_pieces);
  } else {
    for (size_t i = 0; i < run_.size(); ++i) piece += replacement();
  }
  run_.clear();
  checked_ = 0;
  broken_ = false;
  return piece;
}

std::string Detokenizer::finish() {
  std::string piece;
  if (tokenizer_->decoder().rules().bytes == DecoderRules::Bytes::kFallback) {
    piece = end_run();
  } else {
    utf8_.finish(piece);
  }
  for (SteppedText& step : on_text_) {
    piece = step.push(piece);
    piece += step.finish();
  }
  return piece;
}

}  // namespace lagoon::text
