#include "plan/pair.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace lagoon::plan {
namespace {

namespace fs = std::filesystem;

// The NVFP4 draft was trained with another rope_theta than those of the other precisions.
constexpr double kNVFP4Theta = 10'000;

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

// Whether `word` stands in `name` as a word of its own.
bool has_word(const std::string& name, std::string_view word) {
  for (size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_word(name[at - 1])) && (end == name.size() || !is_word(name[end]))) {
      return true;
    }
  }
  return false;
}

// The folder's own name, or that of the repository in a hub cache
// (models--OWNER--NAME/snapshots/REVISION).
std::string published_name(const std::string& directory) {
  fs::path path = fs::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.parent_path().filename() == "snapshots") path = path.parent_path().parent_path();
  std::string name = path.filename().string();
  if (name.starts_with("models--")) name = name.substr(name.rfind("--") + 2);
  return upper(name);
}

std::string other_draft(const std::string& wanted) {
  return fmt::format("take the draft that is published for {} (poolside's end in -DFlash{})",
                     wanted, wanted == "BF16" ? "" : "-" + wanted);
}

}  // namespace

std::optional<std::string> named_precision(const std::string& draft_directory) {
  const std::string name = published_name(draft_directory);
  const size_t at = name.find("DFLASH");
  if (at == std::string::npos) return std::nullopt;
  const std::string rest = name.substr(at);
  if (has_word(rest, "NVFP4")) return "NVFP4";
  if (has_word(rest, "FP8")) return "FP8";
  if (has_word(rest, "INT4") || has_word(rest, "W4A16")) return "INT4";
  if (has_word(rest, "BF16")) return "BF16";
  // As published, without anything more: "Laguna-S-2.1-DFlash".
  if (name.starts_with("LAGUNA-") && rest == "DFLASH") return "BF16";
  return std::nullopt;
}

Result<void> check_precision(const Inventory& target, const std::string& target_directory,
                             const std::string& draft_directory) {
  const auto named = named_precision(draft_directory);
  const std::string wanted(format_name(precision_class(target)));
  if (!named || *named == wanted) return {};
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("the draft {} was made for a target in {}, as its name says, and {} is "
                           "in {}: next to nothing that it proposes would be accepted; {}",
                           draft_directory, *named, target_directory, wanted, other_draft(wanted))};
}

std::string likely_cause(const std::string& draft_directory, const checkpoint::DraftConfig& draft,
                         const Inventory& target) {
  const std::string wanted(format_name(precision_class(target)));
  if (wanted == "NVFP4" && draft.rope.theta > kNVFP4Theta && !named_precision(draft_directory)) {
    return fmt::format(
        "its rope_theta is {:g}, as in drafts for targets in BF16, FP8 and INT4, and this target "
        "is in NVFP4: {}",
        draft.rope.theta, other_draft(wanted));
  }
  return fmt::format(
      "most likely it was made for another precision or another revision of the target, which is "
      "in {}: {}, of the same date as the target",
      wanted, other_draft(wanted));
}

}  // namespace lagoon::plan
