// Writes safetensors files (checkpoint/safetensors.h tells the format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "numeric/dtype.h"

namespace lagoon::checkpoint {

// Gives a tensor's bytes from `first` on; called for one part after the other, each a multiple of 8
// bytes but for the last.
using MakeBytes = std::function<void(uint64_t first, std::span<std::byte> into)>;

// A tensor to write: row-major and little-endian, as many bytes as dtype and shape need. They are
// `bytes`, or where `make` is set what it gives, so that a file may be larger than the memory.
struct TensorToWrite {
  std::string name;
  numeric::DType dtype = numeric::DType::kBF16;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  MakeBytes make = nullptr;
};

// What dtype and shape need. Error: an extent below 0, or more bytes than 64 bits count.
Result<uint64_t> byte_size(const TensorToWrite& tensor);

using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

// Writes `tensors` so that each lies aligned to its dtype: the header is padded to a multiple of 8,
// wide dtypes come first, equal ones in order of name. The file takes its name when it is complete.
// `wrote` hears of every part on its way to the disk. Errors: a name twice or reserved, bytes that
// do not fit dtype and shape, and what the disk says.
Result<void> write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                               const SafetensorsMetadata& metadata = {},
                               const std::function<void(uint64_t bytes)>& wrote = nullptr);

}  // namespace lagoon::checkpoint
