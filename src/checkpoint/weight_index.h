// Which files hold a model directory's weights: model.safetensors.index.json if there is one, else
// model.safetensors or all of model*.safetensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lagoon::checkpoint {

struct WeightFiles {
  std::vector<std::string> shards;  // file names within the directory, sorted
  // With an index: every tensor and the place of its shard in `shards`, sorted by name.
  struct Entry {
    std::string tensor;
    size_t shard = 0;
  };
  bool indexed = false;
  std::vector<Entry> entries;

  // Null if the index does not name the tensor.
  const Entry* find(std::string_view tensor) const;
};

// The text of an index; `path` names it in errors: not JSON, no weight_map, an entry that is not a
// file of the same folder, a tensor twice.
Result<WeightFiles> parse_weight_index(std::string_view json, const std::string& path);

// Errors: no weights at all, a malformed index, one that names a file outside the directory, a
// shard that is not there (with or without an index: model-00002-of-00003 implies its sisters).
Result<WeightFiles> find_weight_files(const std::string& directory);

// Where parts of a download lie in the directory, in its .cache/huggingface/download or, if it is a
// snapshot of the hub cache, among that repository's blobs: "; the download is unfinished (NAME
// lies in FOLDER): ...", with what to do; else empty.
std::string unfinished_download_hint(const std::string& directory);

// The partial file of one that the directory lacks, "tokenizer.json.part" without tokenizer.json;
// "" where there is none.
std::string missing_for_partial(const std::string& directory);

}  // namespace lagoon::checkpoint
