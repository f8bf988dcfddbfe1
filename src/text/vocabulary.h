// The two-way table of token contents and ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/string_table.h"

namespace lagoon::text {

class Vocabulary {
 public:
  // Ids lie in [0, kMaxIds): far beyond any real vocabulary, and small enough for a plain table.
  static constexpr int32_t kMaxIds = 1 << 22;

  enum class Added { kNew, kContentTaken, kIdTaken };
  void reserve(size_t tokens) { ids_.reserve(tokens); }
  // `content` is not empty. Nothing changes unless kNew is returned.
  Added add(std::string_view content, int32_t id);

  std::optional<int32_t> find(std::string_view content) const { return ids_.find(content); }
  // "" where no token has the id.
  const std::string& content(int32_t id) const;
  int32_t size() const { return static_cast<int32_t>(contents_.size()); }  // highest id + 1

 private:
  std::vector<std::string> contents_;
  StringTable ids_;
};

}  // namespace lagoon::text
