// A model directory as published: config.json, *.safetensors with or without an index, tokenizer
// files. Opening one reads configs and headers only and finds what is wrong before a weight is
// read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"

namespace lagoon::checkpoint {

// A tensor of the directory and its bytes, valid while the ModelDir lives.
struct Tensor {
  const TensorInfo* info = nullptr;
  const SafetensorsFile* file = nullptr;
  std::span<const std::byte> bytes;
};

// What a model needs: one tensor by name, with the dtypes it may have and the shape it must have.
struct ExpectedTensor {
  std::string name;
  std::vector<numeric::DType> dtypes;
  std::vector<int64_t> shape;  // a single element may be stored as [] or [1]
  bool required = true;        // else it may be absent
};

class ModelDir {
 public:
  // Errors: no such directory, no config.json, no weights, an index naming a missing shard or a
  // tensor its shard lacks, a tensor in two shards, a part of a file whose whole is not
  // there, and all of SafetensorsFile::open.
  static Result<ModelDir> open(const std::string& directory);
  // The same without weights: a directory that has a config.json and perhaps a tokenizer. It has no
  // tensors, whether or not there are any on disk.
  static Result<ModelDir> open_config(const std::string& directory);

  const std::string& path() const { return path_; }
  // Full text of config.json.
  const std::string& config_json() const { return config_json_; }
  std::string file_path(std::string_view name) const;  // path() + "/" + name
  // Text of a small file of the directory; kNotFound if it is absent.
  Result<std::string> read_text(std::string_view name) const;

  std::optional<Tensor> find(std::string_view name) const;
  // All of them, sorted by name. Their payload is not touched.
  std::vector<Tensor> tensors() const;
  size_t tensor_count() const { return index_.size(); }
  uint64_t weight_bytes() const;

  // Compares the directory with what the model needs: a missing tensor, one of another dtype or
  // shape, or one that nothing expects is an error naming file and tensor.
  Result<void> check(std::span<const ExpectedTensor> expected) const;

 private:
  struct Location {
    int file = 0;
    int tensor = 0;
  };
  ModelDir() = default;
  Result<void> open_weights();
  Tensor tensor_at(const Location& location) const;

  std::string path_;
  std::string config_json_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Location, std::less<>> index_;
};

// Finds a model named on the command line: a directory as given, else one of that name among the
// bundled models, which lie in models/ beside the program, in four levels of its parent folders (a
// build tree), or in ../share/lagoon/models, else a repository's id such as
// poolside/Laguna-S-2.1-NVFP4 in the hub cache (checkpoint/hub_cache.h), where `revision` counts.
// The error names the bundled models, or the places searched, or the command that downloads it.
Result<std::string> find_model(const std::string& name, const std::string& revision = "");

}  // namespace lagoon::checkpoint
