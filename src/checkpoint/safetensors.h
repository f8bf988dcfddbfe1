// One safetensors file: an 8-byte little-endian header length, a JSON header, then the tensors'
// bytes (https://github.com/huggingface/safetensors, "Format"). Opening reads and checks the header
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "numeric/dtype.h"

namespace lagoon::checkpoint {

// Where a tensor lies in its file.
struct TensorInfo {
  std::string name;
  numeric::DType dtype = numeric::DType::kBF16;
  std::vector<int64_t> shape;  // empty for a scalar
  uint64_t offset = 0;         // of the first byte, from the start of the file
  uint64_t bytes = 0;

  int64_t elements() const;
};

// "[256, 64]", as error messages print shapes.
std::string shape_to_string(const std::vector<int64_t>& shape);

// Immutable after open(); safe to read from several threads.
class SafetensorsFile {
 public:
  // Errors name the file, and the tensor where there is one: not there, not a regular file, a Git
  // LFS pointer, shorter than its header says, a header that is not valid JSON or not of the
  // format, unknown dtype, bytes that do not match dtype and shape, offsets that overlap, leave a
  // gap or leave the file, a name twice.
  static Result<SafetensorsFile> open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::string& path() const { return path_; }
  // In order of offset.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Null if there is none of that name.
  const TensorInfo* find(std::string_view name) const;
  // The tensor's bytes, mapped; valid while this object lives, at any alignment: the format does
  // not promise that of the dtype. A file that is changed meanwhile may give other bytes or SIGBUS.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const;
  // The whole file, mapped.
  std::span<const std::byte> mapping() const { return {map_, map_bytes_}; }

 private:
  SafetensorsFile() = default;
  std::string path_;
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> by_name_;  // indices into tensors_
  const std::byte* map_ = nullptr;
  size_t map_bytes_ = 0;
};

}  // namespace lagoon::checkpoint
