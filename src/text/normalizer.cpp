#include "text/normalizer.h"

#include "text/nfc.h"

namespace lagoon::text {

std::string replace_all(std::string_view text, const ReplaceStep& step) {
  std::string replaced;
  replaced.reserve(text.size());
  size_t copied = 0;
  for (size_t at = text.find(step.pattern); at != std::string_view::npos;
       at = text.find(step.pattern, copied)) {
    replaced.append(text, copied, at - copied);
    replaced += step.content;
    copied = at + step.pattern.size();
  }
  replaced.append(text, copied);
  return replaced;
}

std::string Normalizer::apply(std::string_view text) const {
  std::string normalized(text);
  for (const NormalizerStep& step : steps_) {
    if (std::holds_alternative<NfcStep>(step)) {
      normalized = to_nfc(normalized);
    } else if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
      normalized = replace_all(normalized, *replace);
    } else if (!normalized.empty()) {
      normalized.insert(0, std::get<PrependStep>(step).content);
    }
  }
  return normalized;
}

}  // namespace lagoon::text
