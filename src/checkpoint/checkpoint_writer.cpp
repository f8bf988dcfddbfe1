#include "checkpoint/checkpoint_writer.h"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "checkpoint/file.h"

namespace lagoon::checkpoint {
namespace {

namespace fs = std::filesystem;

// Headers, index and the other files of a directory: some thousandth of a real checkpoint.
constexpr uint64_t kSpareBytes = 64 << 20;

std::string gigabytes(uint64_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

// Where each shard begins in `tensors`, and the end of the last.
Result<std::vector<size_t>> shard_bounds(std::span<const TensorToWrite> tensors,
                                         uint64_t max_bytes) {
  std::vector<size_t> bounds = {0};
  uint64_t filled = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    LAGOON_ASSIGN(const uint64_t bytes, byte_size(tensors[i]));
    if (filled > 0 && filled + bytes > max_bytes) {
      bounds.push_back(i);
      filled = 0;
    }
    filled += bytes;
  }
  bounds.push_back(tensors.size());
  return bounds;
}

}  // namespace

Result<void> prepare_directory(const std::string& directory, uint64_t bytes) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} cannot be made: {}", in_quotes(directory), error.message())};
  const bool empty = fs::is_empty(directory, error);
  if (error)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} cannot be read: {}", in_quotes(directory), error.message())};
  if (!empty)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is not empty: name a new directory, or empty this one",
                             in_quotes(directory))};
  const fs::space_info space = fs::space(directory, error);
  if (!error && space.available < bytes + kSpareBytes)
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("the disk of {} has {} free, and the checkpoint takes {}: write to "
                             "another disk, or ask for fewer --layers",
                             in_quotes(directory), gigabytes(space.available), gigabytes(bytes))};
  return {};
}

Result<void> write_weights(const std::string& directory, std::span<const TensorToWrite> tensors,
                           const WriteOptions& options) {
  LAGOON_ASSIGN(const uint64_t total, total_bytes(tensors));
  LAGOON_ASSIGN(const std::vector<size_t> bounds, shard_bounds(tensors, options.max_shard_bytes));
  uint64_t written = 0;
  const auto wrote = [&](uint64_t bytes) {
    written += bytes;
    if (options.progress) options.progress(written, total);
  };
  const SafetensorsMetadata metadata = {{"format", "pt"}};
  const size_t shards = bounds.size() - 1;
  if (shards == 1)
    return write_safetensors(directory + "/model.safetensors", tensors, metadata, wrote);

  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = total;
  nlohmann::ordered_json::object_t places;
  for (size_t shard = 0; shard < shards; ++shard) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
    const auto part = tensors.subspan(bounds[shard], bounds[shard + 1] - bounds[shard]);
    LAGOON_RETURN_IF_ERROR(
        write_safetensors(fmt::format("{}/{}", directory, name), part, metadata, wrote));
    // ordered_json looks for each key among all before it; its pairs can be appended without.
    for (const TensorToWrite& tensor : part) places.emplace_back(tensor.name, name);
  }
  index["weight_map"] = std::move(places);
  return write_text(directory + "/model.safetensors.index.json", index.dump(2) + "\n");
}

Result<void> write_text(const std::string& path, std::string_view text) {
  const std::string partial = path + ".part";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  std::error_code error;
  if (!file.fail()) fs::rename(partial, path, error);
  if (!file.fail() && !error) return {};
  fs::remove(partial, error);
  return Error{ErrorCode::kInternal,
               fmt::format("{} cannot be written: is the folder there, and the disk full?", path)};
}

Result<uint64_t> total_bytes(std::span<const TensorToWrite> tensors) {
  uint64_t total = 0;
  for (const TensorToWrite& tensor : tensors) {
    LAGOON_ASSIGN(const uint64_t bytes, byte_size(tensor));
    if (__builtin_add_overflow(total, bytes, &total))
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("tensor {} does not fit what 64 bits count", in_quotes(tensor.name))};
  }
  return total;
}

}  // namespace lagoon::checkpoint
