#include "plan/scan.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "checkpoint/config_parts.h"
#include "checkpoint/file.h"
#include "checkpoint/json_value.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/safetensors.h"
#include "model/weights.h"

namespace lagoon::plan {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 24;
constexpr std::string_view kEnding = ".safetensors";
constexpr std::string_view kPartial[] = {".incomplete", ".part", ".aria2", ".crdownload"};

bool ends_with_any(std::string_view name) {
  return std::any_of(std::begin(kPartial), std::end(kPartial),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

int64_t size_of(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

std::vector<fs::path> files_in(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    files.push_back(at->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Downloads in progress: in the folder, where the hub's client keeps them below it, and in the
// blobs of a hub cache beside snapshots/.
void find_partial(const fs::path& directory, ScannedModel& scanned) {
  std::vector<fs::path> places = {directory, directory / ".cache/huggingface/download"};
  const fs::path above = fs::absolute(directory).lexically_normal().parent_path();
  if (above.filename() == "snapshots") places.push_back(above.parent_path() / "blobs");
  for (const fs::path& place : places) {
    for (const fs::path& file : files_in(place)) {
      if (!ends_with_any(file.filename().string())) continue;
      scanned.partial.push_back(file.string());
      scanned.bytes_present += size_of(file);
    }
  }
}

// The files that an index names; none where there is no index that can be read.
std::set<std::string> indexed_files(const fs::path& directory) {
  std::ifstream file(directory / "model.safetensors.index.json");
  std::set<std::string> names;
  const auto index = nlohmann::json::parse(file, nullptr, false);
  if (!index.is_object() || !index.contains("weight_map")) return names;
  const auto& map = index["weight_map"];
  if (!map.is_object()) return names;
  for (const auto& name : map) {
    if (name.is_string()) names.insert(name.get<std::string>());
  }
  return names;
}

// "model-00002-of-00014.safetensors" says that there are 14.
std::set<std::string> sisters(const std::vector<fs::path>& files) {
  for (const fs::path& file : files) {
    int number = 0;
    int count = 0;
    if (std::sscanf(file.filename().c_str(), "model-%5d-of-%5d", &number, &count) != 2) continue;
    std::set<std::string> names;
    for (int i = 1; i <= std::min(count, 99999); ++i) {
      names.insert(fmt::format("model-{:05}-of-{:05}.safetensors", i, count));
    }
    return names;
  }
  return {};
}

void look_at_files(const fs::path& directory, ScannedModel& scanned) {
  const std::vector<fs::path> files = files_in(directory);
  std::set<std::string> expected = indexed_files(directory);
  if (expected.empty()) expected = sisters(files);
  scanned.files_expected = static_cast<int>(expected.size());
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    if (!name.ends_with(kEnding)) continue;
    scanned.bytes_present += size_of(file);
    if (checkpoint::SafetensorsFile::open(file.string()).ok()) ++scanned.files_present;
    expected.erase(name);
  }
  scanned.missing.assign(expected.begin(), expected.end());
  find_partial(directory, scanned);
  const bool nothing = scanned.bytes_present == 0 && scanned.missing.empty();
  scanned.state = nothing ? ScannedModel::State::kConfigOnly : ScannedModel::State::kIncomplete;
}

Result<void> check_tensors(const checkpoint::ModelDir& directory, const ScannedModel& scanned) {
  if (scanned.is_draft) {
    LAGOON_ASSIGN(const auto config,
                  checkpoint::parse_draft_config(scanned.config_json, scanned.config_path));
    return model::check_draft_tensors(directory, config);
  }
  LAGOON_ASSIGN(const auto config,
                checkpoint::parse_target_config(scanned.config_json, scanned.config_path));
  return model::check_target_tensors(directory, config);
}

Result<Inventory> expected_of(const ScannedModel& scanned) {
  if (scanned.is_draft) {
    LAGOON_ASSIGN(const auto config,
                  checkpoint::parse_draft_config(scanned.config_json, scanned.config_path));
    return expected_inventory(config, scanned.config_json, scanned.config_path);
  }
  LAGOON_ASSIGN(const auto config,
                checkpoint::parse_target_config(scanned.config_json, scanned.config_path));
  return expected_inventory(config, scanned.config_json, scanned.config_path);
}

Result<bool> is_draft(const ScannedModel& scanned) {
  LAGOON_ASSIGN(const checkpoint::JsonValue document,
                checkpoint::parse_json(scanned.config_json, scanned.config_path));
  const auto* object = document.get_if<checkpoint::JsonObject>();
  if (object == nullptr) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is not a JSON object", scanned.config_path)};
  }
  const checkpoint::JsonFields config(*object, scanned.config_path);
  return checkpoint::check_architecture(config, checkpoint::kDraftArchitecture).ok();
}

}  // namespace

int ScannedModel::percent() const {
  if (state == State::kComplete) return 100;
  const int64_t wanted = std::max<int64_t>(inventory.bytes(), 1);
  return static_cast<int>(std::min<int64_t>(bytes_present * 100 / wanted, 99));
}

Result<ScannedModel> scan_model(const std::string& name, const std::string& revision) {
  ScannedModel scanned;
  std::error_code error;
  const bool file = fs::is_regular_file(name, error);
  if (file && !revision.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("revision {} is asked for, and {} is a file: leave the revision out",
                             revision, name)};
  }
  if (file) {
    scanned.path = scanned.config_path = name;
  } else {
    LAGOON_ASSIGN(scanned.path, checkpoint::find_model(name, revision));
    scanned.config_path = (fs::path(scanned.path) / "config.json").string();
  }
  LAGOON_ASSIGN(scanned.config_json,
                checkpoint::read_whole_file(scanned.config_path, kMaxConfigBytes));
  LAGOON_ASSIGN(scanned.is_draft, is_draft(scanned));
  LAGOON_ASSIGN(scanned.inventory, expected_of(scanned));
  if (file) return scanned;
  const auto opened = checkpoint::ModelDir::open(scanned.path);
  const auto checked = opened.ok() ? check_tensors(*opened, scanned) : opened.error();
  if (checked.ok()) {
    scanned.state = ScannedModel::State::kComplete;
    scanned.inventory = take_inventory(*opened);
    return scanned;
  }
  look_at_files(scanned.path, scanned);
  scanned.problem = checked.error().message;
  return scanned;
}

}  // namespace lagoon::plan
