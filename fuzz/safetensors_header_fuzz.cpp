// Four bytes, little endian: how many bytes of tensors the file holds. The rest: its header. What
// is accepted must fill the file, in order, without overlap or gap.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "checkpoint/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint32_t data_bytes = 0;
  if (size < sizeof data_bytes) return 0;
  std::memcpy(&data_bytes, data, sizeof data_bytes);
  const std::string_view header(reinterpret_cast<const char*>(data) + sizeof data_bytes,
                                size - sizeof data_bytes);
  const uint64_t data_start = 8 + header.size();
  const uint64_t file_bytes = data_start + data_bytes;
  const auto tensors = lagoon::checkpoint::parse_safetensors_header(header, data_start, file_bytes,
                                                                    "model.safetensors");
  if (!tensors.ok()) return 0;
  uint64_t end = data_start;
  for (const auto& tensor : tensors.value()) {
    CHECK(tensor.offset == end && tensor.bytes <= file_bytes - end);
    end += tensor.bytes;
  }
  CHECK(end == file_bytes);
  return 0;
}
