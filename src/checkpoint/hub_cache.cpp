#include "checkpoint/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/weight_index.h"

namespace lagoon::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderStart = "models--";
constexpr std::string_view kSeparator = "--";
constexpr uint64_t kMaxReference = 1000;  // bytes of a file that holds a commit
constexpr size_t kLeastDigits = 7;        // of an abbreviated commit

// Revisions that belong together and fit one machine. Of the target, the last before eight layers
// of experts became BF16 (99.7 GB in place of 71.9); of the draft, the one made for it.
struct Pin {
  std::string_view repository;
  std::string_view commit;
};
constexpr std::array<Pin, 2> kPins = {{
    {"poolside/Laguna-S-2.1-NVFP4", "07614121b31898586430f189d27a25a0be310843"},
    {"poolside/Laguna-S-2.1-DFlash-NVFP4", "723794750422b3efbf3a7b3af76dffb4ba035943"},
}};

std::string pinned(std::string_view repository) {
  const auto at = std::find_if(kPins.begin(), kPins.end(),
                               [&](const Pin& pin) { return pin.repository == repository; });
  return at == kPins.end() ? "" : std::string(at->commit);
}

bool is_name(std::string_view name) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), good);
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Commits whose snapshots are there, sorted.
std::vector<std::string> snapshots_in(const fs::path& folder) {
  std::vector<std::string> commits;
  std::error_code error;
  for (fs::directory_iterator at(folder / "snapshots", error), end; !error && at != end;
       at.increment(error))
    commits.push_back(at->path().filename().string());
  std::sort(commits.begin(), commits.end());
  return commits;
}

// The commit of a branch or tag; "" where there is none of that name.
std::string reference(const fs::path& folder, const std::string& name) {
  // A name may have slashes, but must not lead out of the folder.
  for (const fs::path& part : fs::path(name))
    if (part == ".." || part.is_absolute()) return "";
  const Result<std::string> text =
      read_whole_file((folder / "refs" / name).string(), kMaxReference);
  if (!text.ok()) return "";
  const size_t end = text->find_last_not_of(" \n\r\t");
  return text->substr(0, end == std::string::npos ? 0 : end + 1);
}

bool is_there(const std::vector<std::string>& commits, const std::string& commit) {
  return std::binary_search(commits.begin(), commits.end(), commit);
}

// The commit that is asked for, as far as the cache knows it; "" if it does not.
std::string resolve(const fs::path& folder, const std::string& repository,
                    const std::string& revision, const std::vector<std::string>& commits) {
  if (revision.empty()) {
    for (const std::string& commit : {reference(folder, "main"), pinned(repository)})
      if (is_there(commits, commit)) return commit;
    return commits.size() == 1 ? commits.front() : "";
  }
  if (is_there(commits, revision)) return revision;
  if (const std::string commit = reference(folder, revision); is_there(commits, commit))
    return commit;
  if (revision.size() < kLeastDigits) return "";
  const auto begins = [&](const std::string& commit) { return commit.starts_with(revision); };
  if (std::count_if(commits.begin(), commits.end(), begins) != 1) return "";
  return *std::find_if(commits.begin(), commits.end(), begins);
}

}  // namespace

bool is_repository_id(std::string_view name) {
  const size_t slash = name.find('/');
  return slash != std::string_view::npos && is_name(name.substr(0, slash)) &&
         is_name(name.substr(slash + 1));
}

std::string hub_cache_directory() {
  // The client's own names, the second of them from before it had the first.
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (std::string directory = environment(name); !directory.empty()) return directory;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/huggingface/hub";
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface/hub";
}

std::string download_command(const std::string& repository, const std::string& revision) {
  const std::string commit = revision.empty() ? pinned(repository) : revision;
  // Downloads by its other way, xet, have been seen to hang.
  return fmt::format("HF_HUB_DISABLE_XET=1 hf download {}{}{}", repository,
                     commit.empty() ? "" : " --revision ", commit);
}

Result<std::string> find_in_hub_cache(const std::string& repository, const std::string& revision,
                                      const std::string& cache) {
  std::string name(kFolderStart);
  name += repository;
  name.replace(name.find('/'), 1, kSeparator);
  const fs::path folder = fs::path(cache) / name;
  const std::vector<std::string> commits = snapshots_in(folder);
  const std::string commit = resolve(folder, repository, revision, commits);
  if (!commit.empty()) return (folder / "snapshots" / commit).string();

  const std::string command = download_command(repository, revision);
  const std::string wanted =
      revision.empty() ? in_quotes(repository)
                       : fmt::format("revision {} of {}", in_quotes(revision), repository);
  if (cache.empty())
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is no directory, and neither HF_HUB_CACHE, HF_HOME nor HOME says "
                             "where the hub cache is",
                             wanted)};
  if (commits.size() > 1 && revision.empty())
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is in {} in several revisions and none is main: name one with "
                             "--revision ({})",
                             wanted, folder.string(), fmt::join(commits, ", "))};
  std::error_code error;
  if (fs::is_directory(folder, error))
    return Error{
        ErrorCode::kNotFound,
        fmt::format("{} is not complete in {}{}: download it with `{}`", wanted, folder.string(),
                    unfinished_download_hint((folder / "snapshots" / "none").string()), command)};
  return Error{ErrorCode::kNotFound,
               fmt::format("{} is neither a directory nor in the hub cache {}, and Lagoon does not "
                           "download models: run `{}`",
                           wanted, cache, command)};
}

std::optional<HubSnapshot> hub_snapshot_of(const std::string& directory) {
  std::error_code error;
  fs::path path = fs::absolute(directory, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string folder = path.parent_path().parent_path().filename().string();
  if (error || path.parent_path().filename() != "snapshots" || !folder.starts_with(kFolderStart))
    return std::nullopt;
  std::string repository = folder.substr(kFolderStart.size());
  const size_t separator = repository.find(kSeparator);
  if (separator == std::string::npos) return std::nullopt;
  repository.replace(separator, kSeparator.size(), "/");
  if (!is_repository_id(repository)) return std::nullopt;
  return HubSnapshot{repository, path.filename().string()};
}

}  // namespace lagoon::checkpoint
