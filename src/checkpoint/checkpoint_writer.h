// Writes the weights of a model directory in the published form.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/safetensors_writer.h"

namespace lagoon::checkpoint {

struct WriteOptions {
  uint64_t max_shard_bytes = 5'000'000'000;  // of tensors; one that is larger has its own shard
  // Called after each part of some megabytes.
  std::function<void(uint64_t written, uint64_t total)> progress;
};

// Makes `directory` (its parents too) unless it is there, and makes sure that it is empty and that
// its disk has room for `bytes` of tensors. The error says what to do.
Result<void> prepare_directory(const std::string& directory, uint64_t bytes);

// Writes model.safetensors, or, where the tensors do not fit one shard,
// model-00001-of-0000N.safetensors and so on in the order given, with model.safetensors.index.json
// as the last. Needs no more memory than a few megabytes beside what tensors bring along. Errors:
// those of write_safetensors().
Result<void> write_weights(const std::string& directory, std::span<const TensorToWrite> tensors,
                           const WriteOptions& options = {});

// Writes a small file that takes its name when it is complete.
Result<void> write_text(const std::string& path, std::string_view text);

// What write_weights() will write of tensor bytes.
Result<uint64_t> total_bytes(std::span<const TensorToWrite> tensors);

}  // namespace lagoon::checkpoint
