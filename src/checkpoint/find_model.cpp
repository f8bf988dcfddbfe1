#include "checkpoint/find_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "checkpoint/file.h"
#include "checkpoint/hub_cache.h"
#include "checkpoint/model_dir.h"

namespace lagoon::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kParentLevels = 4;

// Directories with a config.json in any of the places, each name once.
std::vector<std::string> bundled_names(const std::vector<std::string>& places) {
  std::vector<std::string> names;
  for (const std::string& place : places) {
    std::error_code error;
    for (fs::directory_iterator at(place, error), end; !error && at != end; at.increment(error)) {
      std::error_code unreadable;
      if (fs::exists(at->path() / "config.json", unreadable))
        names.push_back(at->path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string join(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : ", ") + text;
  return joined;
}

Error not_found(const std::string& name, const std::vector<std::string>& places) {
  const std::vector<std::string> names = bundled_names(places);
  if (!names.empty())
    return {ErrorCode::kNotFound,
            fmt::format("no such directory: {}; bundled models: {}", in_quotes(name), join(names))};
  return {ErrorCode::kNotFound,
          fmt::format("no such directory: {}; no bundled models were found in {}", in_quotes(name),
                      join(places))};
}

}  // namespace

std::vector<std::string> bundled_model_places(const std::string& program_directory) {
  std::vector<std::string> places;
  fs::path directory = program_directory;
  for (int level = 0; level <= kParentLevels; ++level) {
    places.push_back((directory / "models").string());
    if (level == 0) places.push_back((directory.parent_path() / "share/lagoon/models").string());
    if (directory == directory.parent_path()) break;
    directory = directory.parent_path();
  }
  return places;
}

Result<std::string> find_model_in(const std::string& name, const std::vector<std::string>& places,
                                  const std::string& hub_cache, const std::string& revision) {
  if (name.empty()) return Error{ErrorCode::kInvalidArgument, "the name of the model is empty"};
  std::error_code error;
  const fs::file_status status = fs::status(name, error);
  if (fs::exists(status) && !fs::is_directory(status))
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is a file; a model is a directory with config.json and "
                             "safetensors files",
                             name)};
  // A name with a slash is a path: joined to a place it could lead out of it.
  const bool plain = name.find('/') == std::string::npos && name != "." && name != "..";
  std::string found = fs::is_directory(status) ? name : "";
  for (const std::string& place : places) {
    const fs::path candidate = fs::path(place) / name;
    if (found.empty() && plain && fs::is_directory(candidate, error)) found = candidate.string();
  }
  if (found.empty() && is_repository_id(name)) return find_in_hub_cache(name, revision, hub_cache);
  if (found.empty()) return not_found(name, places);
  if (!revision.empty())
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("revision {} is asked for, and {} is a directory: leave the revision "
                             "out, or give a repository's id such as "
                             "poolside/Laguna-S-2.1-NVFP4",
                             in_quotes(revision), found)};
  return found;
}

Result<std::string> find_model(const std::string& name, const std::string& revision) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  std::vector<std::string> places;
  if (!error) places = bundled_model_places(program.parent_path().string());
  return find_model_in(name, places, hub_cache_directory(), revision);
}

}  // namespace lagoon::checkpoint
