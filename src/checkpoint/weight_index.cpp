#include "checkpoint/weight_index.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "checkpoint/file.h"
#include "checkpoint/hub_cache.h"

namespace lagoon::checkpoint {
namespace {

namespace dom = simdjson::dom;
namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
// Endings of files that are being downloaded, by various programs.
constexpr std::array<std::string_view, 4> kPartial = {".incomplete", ".part", ".aria2",
                                                      ".crdownload"};
// Where the Hugging Face client keeps the parts of a download into a folder.
constexpr std::string_view kClientParts = ".cache/huggingface/download";
constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 30;

bool ends_with_any(std::string_view name, std::span<const std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

// Names of a directory's entries, sorted; none if it cannot be read.
std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// A commit's hash, rather than the name of a folder that somebody made.
bool is_commit(std::string_view name) {
  return name.size() == 40 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "`hf download ...`" of a snapshot of the hub cache; "" of other folders.
std::string command_for(const std::string& directory) {
  const std::optional<HubSnapshot> snapshot = hub_snapshot_of(directory);
  if (!snapshot || !is_commit(snapshot->commit)) return "";
  return fmt::format("`{}`", download_command(snapshot->repository, snapshot->commit));
}

// What to do about a file that is not there.
std::string missing_file_hint(const std::string& directory) {
  std::string hint = unfinished_download_hint(directory);
  const std::string command = command_for(directory);
  if (hint.empty() && !command.empty()) hint = fmt::format(": run {}", command);
  return hint;
}

bool is_weight_file(std::string_view name) {
  return name.starts_with("model") && name.ends_with(".safetensors");
}

Error no_weights(const std::string& directory, const std::vector<std::string>& names) {
  std::string hint = unfinished_download_hint(directory);
  if (hint.empty()) {
    constexpr std::array<std::string_view, 4> kOther = {".gguf", ".bin", ".pt", ".safetensors"};
    const auto other = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return ends_with_any(name, kOther);
    });
    if (other != names.end())
      hint =
          fmt::format("; {} is there, but Lagoon reads weights in safetensors files of that name",
                      in_quotes(*other));
  }
  return {ErrorCode::kNotFound,
          fmt::format("{} has no weights: neither model.safetensors nor model-*.safetensors is "
                      "there{}",
                      directory, hint)};
}

// "model-00002-of-00014.safetensors" is shard 2 of 14.
struct ShardName {
  int number = 0;
  int count = 0;
};

std::optional<ShardName> parse_shard_name(std::string_view name) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kStart = "model-";
  constexpr std::string_view kMiddle = "-of-";
  constexpr std::string_view kEnd = ".safetensors";
  if (name.size() != kStart.size() + kMiddle.size() + kEnd.size() + 2 * kDigits) return {};
  ShardName shard;
  const char* number = name.data() + kStart.size();
  const char* count = number + kDigits + kMiddle.size();
  const bool good =
      std::from_chars(number, number + kDigits, shard.number).ptr == number + kDigits &&
      std::from_chars(count, count + kDigits, shard.count).ptr == count + kDigits &&
      std::string_view(number + kDigits, kMiddle.size()) == kMiddle;
  if (!good) return {};
  return shard;
}

// Shards without an index: each says how many there are.
Result<void> check_complete(const std::string& directory, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const std::optional<ShardName> shard = parse_shard_name(name);
    if (!shard) continue;
    for (int i = 1; i <= shard->count; ++i) {
      const std::string sister = fmt::format("model-{:05}-of-{:05}.safetensors", i, shard->count);
      if (!std::binary_search(names.begin(), names.end(), sister))
        return Error{ErrorCode::kNotFound,
                     fmt::format("{}/{} is missing, though {} is there{}", directory, sister, name,
                                 missing_file_hint(directory))};
    }
  }
  return {};
}

Error bad_index(const std::string& path, std::string_view what) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, what)};
}

Result<void> check_shard_name(std::string_view shard, const std::string& path) {
  if (!shard.ends_with(".safetensors"))
    return bad_index(path,
                     fmt::format("it names {}, which is not a safetensors file", in_quotes(shard)));
  if (shard.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos ||
      shard.starts_with('.'))
    return bad_index(
        path, fmt::format("it names {}, which is not a file of the same folder", in_quotes(shard)));
  return {};
}

Result<WeightFiles> read_entries(const dom::object& weight_map, const std::string& path) {
  WeightFiles files;
  files.indexed = true;
  std::map<std::string, size_t, std::less<>> shards;
  std::vector<std::pair<std::string, std::string_view>> placed;
  for (const dom::key_value_pair field : weight_map) {
    std::string_view shard;
    if (field.value.get(shard) != simdjson::SUCCESS)
      return bad_index(path,
                       fmt::format("the file of tensor {} is not a string", in_quotes(field.key)));
    if (!shards.contains(shard)) {
      LAGOON_RETURN_IF_ERROR(check_shard_name(shard, path));
      shards.emplace(shard, 0);
    }
    placed.emplace_back(std::string(field.key), shard);
  }
  if (placed.empty()) return bad_index(path, "its weight_map is empty");
  for (auto& [name, place] : shards) {
    place = files.shards.size();
    files.shards.push_back(name);
  }
  for (auto& [tensor, shard] : placed)
    files.entries.push_back({std::move(tensor), shards.find(shard)->second});
  const auto by_name = [](const auto& a, const auto& b) { return a.tensor < b.tensor; };
  std::sort(files.entries.begin(), files.entries.end(), by_name);
  const auto twice =
      std::adjacent_find(files.entries.begin(), files.entries.end(),
                         [](const auto& a, const auto& b) { return a.tensor == b.tensor; });
  if (twice != files.entries.end())
    return bad_index(path, fmt::format("tensor {} is there twice", in_quotes(twice->tensor)));
  return files;
}

// Left over from another download, most likely: of no use, but worth knowing.
void warn_of_strays(const WeightFiles& files, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (is_weight_file(name) && !std::binary_search(files.shards.begin(), files.shards.end(), name))
      LOG(warning, "{} is not used: {} does not name it", name, kIndexName);
}

Result<WeightFiles> read_index(const std::string& directory,
                               const std::vector<std::string>& names) {
  const std::string path = fmt::format("{}/{}", directory, kIndexName);
  LAGOON_ASSIGN(const std::string text, read_whole_file(path, kMaxIndexBytes));
  LAGOON_ASSIGN(WeightFiles files, parse_weight_index(text, path));
  for (const std::string& shard : files.shards) {
    std::error_code error;
    if (!fs::exists(fs::path(directory) / shard, error))
      return Error{ErrorCode::kNotFound,
                   fmt::format("{}/{} is missing, though {} names it{}", directory, shard,
                               kIndexName, missing_file_hint(directory))};
  }
  warn_of_strays(files, names);
  return files;
}

}  // namespace

const WeightFiles::Entry* WeightFiles::find(std::string_view tensor) const {
  const auto at =
      std::lower_bound(entries.begin(), entries.end(), tensor,
                       [](const Entry& entry, std::string_view key) { return entry.tensor < key; });
  return at != entries.end() && at->tensor == tensor ? &*at : nullptr;
}

Result<WeightFiles> parse_weight_index(std::string_view json, const std::string& path) {
  dom::parser parser;
  dom::element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root))
    return bad_index(path, fmt::format("not valid JSON: {}", simdjson::error_message(error)));
  dom::object weight_map;
  if (root.at_key("weight_map").get(weight_map) != simdjson::SUCCESS)
    return bad_index(path, "it has no object \"weight_map\"");
  return read_entries(weight_map, path);
}

Result<WeightFiles> find_weight_files(const std::string& directory) {
  const std::vector<std::string> names = names_in(directory);
  if (std::binary_search(names.begin(), names.end(), kIndexName))
    return read_index(directory, names);
  WeightFiles files;
  std::copy_if(names.begin(), names.end(), std::back_inserter(files.shards), is_weight_file);
  if (files.shards.empty()) return no_weights(directory, names);
  LAGOON_RETURN_IF_ERROR(check_complete(directory, files.shards));
  return files;
}

std::string unfinished_download_hint(const std::string& directory) {
  std::vector<fs::path> folders = {directory, fs::path(directory) / kClientParts};
  if (hub_snapshot_of(directory))
    folders.push_back(fs::path(directory).parent_path().parent_path() / "blobs");
  const std::string command = command_for(directory);
  for (const fs::path& folder : folders)
    for (const std::string& name : names_in(folder))
      if (ends_with_any(name, kPartial))
        return fmt::format("; the download is unfinished ({} lies in {}): {}", in_quotes(name),
                           folder.lexically_normal().string(),
                           command.empty() ? "run it again" : fmt::format("run {} again", command));
  return "";
}

std::string missing_for_partial(const std::string& directory) {
  const std::vector<std::string> names = names_in(directory);
  for (const std::string& name : names)
    for (const std::string_view ending : kPartial)
      if (name.ends_with(ending) &&
          !std::binary_search(names.begin(), names.end(),
                              name.substr(0, name.size() - ending.size())))
        return name;
  return "";
}

}  // namespace lagoon::checkpoint
