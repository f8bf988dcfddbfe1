#include "checkpoint/model_dir.h"

#include <fmt/core.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/file.h"
#include "checkpoint/weight_index.h"

namespace lagoon::checkpoint {
namespace {

namespace fs = std::filesystem;

// Tokenizer files, the largest text a model directory has, take some tens of megabytes.
constexpr uint64_t kMaxTextBytes = uint64_t{1} << 28;

Result<void> check_directory(const std::string& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (!fs::exists(status))
    return Error{ErrorCode::kNotFound, fmt::format("no such directory: {}", in_quotes(directory))};
  if (!fs::is_directory(status))
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is a file; a model is a directory with config.json and "
                             "safetensors files",
                             directory)};
  return {};
}

}  // namespace

Result<ModelDir> ModelDir::open(const std::string& directory) {
  LAGOON_ASSIGN(ModelDir model, open_config(directory));
  LAGOON_RETURN_IF_ERROR(model.open_weights());
  return model;
}

Result<ModelDir> ModelDir::open_config(const std::string& directory) {
  LAGOON_RETURN_IF_ERROR(check_directory(directory));
  ModelDir model;
  model.path_ = directory;
  while (model.path_.size() > 1 && model.path_.back() == '/') model.path_.pop_back();
  Result<std::string> config = model.read_text("config.json");
  if (!config.ok() && config.error().code == ErrorCode::kNotFound)
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is not a model directory: it has no config.json{}", model.path_,
                             unfinished_download_hint(model.path_))};
  LAGOON_ASSIGN(model.config_json_, std::move(config));
  return model;
}

Result<void> ModelDir::open_weights() {
  LAGOON_ASSIGN(const WeightFiles weights, find_weight_files(path_));
  for (const std::string& shard : weights.shards) {
    LAGOON_ASSIGN(SafetensorsFile file, SafetensorsFile::open(file_path(shard)));
    files_.push_back(std::move(file));
  }
  for (size_t f = 0; f < files_.size(); ++f) {
    const std::vector<TensorInfo>& tensors = files_[f].tensors();
    for (size_t t = 0; t < tensors.size(); ++t) {
      const Location here{static_cast<int>(f), static_cast<int>(t)};
      const auto [at, is_new] = index_.emplace(tensors[t].name, here);
      if (!is_new)
        return Error{
            ErrorCode::kInvalidArgument,
            fmt::format("tensor {} is in both {} and {}", in_quotes(tensors[t].name),
                        files_[static_cast<size_t>(at->second.file)].path(), files_[f].path())};
    }
  }
  if (const std::string partial = missing_for_partial(path_); !partial.empty())
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} is part of a file that is not there yet: the download is "
                             "unfinished, run it again",
                             file_path(partial))};
  if (!weights.indexed) return {};
  for (const WeightFiles::Entry& entry : weights.entries)
    if (files_[entry.shard].find(entry.tensor) == nullptr)
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} lacks tensor {}, which the index places there",
                               files_[entry.shard].path(), in_quotes(entry.tensor))};
  for (const auto& [name, location] : index_)
    if (weights.find(name) == nullptr)
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} has tensor {}, which the index does not name",
                               files_[static_cast<size_t>(location.file)].path(), in_quotes(name))};
  return {};
}

std::string ModelDir::file_path(std::string_view name) const {
  return fmt::format("{}/{}", path_, name);
}

Result<std::string> ModelDir::read_text(std::string_view name) const {
  return read_whole_file(file_path(name), kMaxTextBytes);
}

Tensor ModelDir::tensor_at(const Location& location) const {
  const SafetensorsFile& file = files_[static_cast<size_t>(location.file)];
  const TensorInfo& info = file.tensors()[static_cast<size_t>(location.tensor)];
  return {&info, &file, file.bytes(info)};
}

std::optional<Tensor> ModelDir::find(std::string_view name) const {
  const auto at = index_.find(name);
  if (at == index_.end()) return std::nullopt;
  return tensor_at(at->second);
}

std::vector<Tensor> ModelDir::tensors() const {
  std::vector<Tensor> tensors;
  tensors.reserve(index_.size());
  for (const auto& [name, location] : index_) tensors.push_back(tensor_at(location));
  return tensors;
}

uint64_t ModelDir::weight_bytes() const {
  uint64_t bytes = 0;
  for (const SafetensorsFile& file : files_)
    for (const TensorInfo& tensor : file.tensors()) bytes += tensor.bytes;
  return bytes;
}

}  // namespace lagoon::checkpoint
