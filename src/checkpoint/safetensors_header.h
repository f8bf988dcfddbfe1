// The JSON header of a safetensors file: its text parsed and its offsets checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace lagoon::checkpoint {

// The tensors of a header in order of offset. `header` is the JSON text, `data_start` the file
// offset of the first tensor byte, `file_bytes` the size of the file; offsets of the result count
// from the start of the file. The tensors fill [data_start, file_bytes) without overlap or gap, and
// every shape and dtype agree with their bytes.
Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header,
                                                         uint64_t data_start, uint64_t file_bytes,
                                                         const std::string& path);

}  // namespace lagoon::checkpoint
