#include "text/vocabulary.h"

#include "base/check.h"

namespace lagoon::text {

Vocabulary::Added Vocabulary::add(std::string_view content, int32_t id) {
  CHECK(!content.empty() && id >= 0 && id < kMaxIds);
  const auto index = static_cast<size_t>(id);
  if (index < contents_.size() && !contents_[index].empty()) {
    return find(content) ? Added::kContentTaken : Added::kIdTaken;
  }
  if (!ids_.insert(content, id)) return Added::kContentTaken;
  if (index >= contents_.size()) contents_.resize(index + 1);
  contents_[index] = content;
  return Added::kNew;
}

const std::string& Vocabulary::content(int32_t id) const {
  static const std::string kNone;
  return id >= 0 && id < size() ? contents_[static_cast<size_t>(id)] : kNone;
}

}  // namespace lagoon::text
