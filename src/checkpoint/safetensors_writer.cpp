#include "checkpoint/safetensors_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "checkpoint/file.h"
#include "checkpoint/safetensors.h"

namespace lagoon::checkpoint {
namespace {

constexpr std::string_view kMetadata = "__metadata__";
constexpr uint64_t kPartBytes = 4 << 20;

std::string json_string(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      json += c;
    }
  }
  return json + "\"";
}

Error invalid(const TensorToWrite& tensor, std::string_view what) {
  return {ErrorCode::kInvalidArgument, fmt::format("tensor {} {}", in_quotes(tensor.name), what)};
}

Result<void> check_bytes(const TensorToWrite& tensor) {
  LAGOON_ASSIGN(const uint64_t bytes, byte_size(tensor));
  if (!tensor.make && bytes != tensor.bytes.size())
    return invalid(tensor, fmt::format("has {} bytes, but {} of shape {} takes {}",
                                       tensor.bytes.size(), numeric::dtype_name(tensor.dtype),
                                       shape_to_string(tensor.shape), bytes));
  return {};
}

// The tensors in the order in which they are written.
Result<std::vector<const TensorToWrite*>> in_file_order(std::span<const TensorToWrite> tensors) {
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) {
    if (tensor.name == kMetadata) return invalid(tensor, "has a name that the format reserves");
    LAGOON_RETURN_IF_ERROR(check_bytes(tensor));
    order.push_back(&tensor);
  }
  const auto by_name = [](const auto* a, const auto* b) { return a->name < b->name; };
  std::sort(order.begin(), order.end(), by_name);
  const auto twice = std::adjacent_find(
      order.begin(), order.end(), [](const auto* a, const auto* b) { return a->name == b->name; });
  if (twice != order.end()) return invalid(**twice, "is there twice");
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    const size_t a_size = numeric::dtype_size(a->dtype);
    const size_t b_size = numeric::dtype_size(b->dtype);
    return a_size != b_size ? a_size > b_size : a->name < b->name;
  });
  return order;
}

std::string header_of(const std::vector<const TensorToWrite*>& order,
                      const SafetensorsMetadata& metadata) {
  std::string header = "{";
  if (!metadata.empty()) {
    header += json_string(kMetadata) + ":{";
    for (size_t i = 0; i < metadata.size(); ++i)
      header += fmt::format("{}{}:{}", i == 0 ? "" : ",", json_string(metadata[i].first),
                            json_string(metadata[i].second));
    header += "}";
  }
  uint64_t offset = 0;
  for (const TensorToWrite* tensor : order) {
    const uint64_t bytes = *byte_size(*tensor);  // checked
    if (header.size() > 1) header += ",";
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                          json_string(tensor->name), numeric::dtype_name(tensor->dtype),
                          shape_to_string(tensor->shape), offset, offset + bytes);
    offset += bytes;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

void write_tensor(const TensorToWrite& tensor, std::ofstream& file,
                  const std::function<void(uint64_t)>& wrote) {
  const uint64_t size = *byte_size(tensor);
  std::vector<std::byte> made;
  for (uint64_t first = 0; first < size && !file.fail(); first += kPartBytes) {
    const uint64_t bytes = std::min(kPartBytes, size - first);
    const std::byte* part = nullptr;
    if (tensor.make) {
      made.resize(bytes);
      tensor.make(first, made);
      part = made.data();
    } else {
      part = tensor.bytes.data() + first;
    }
    file.write(reinterpret_cast<const char*>(part), static_cast<std::streamsize>(bytes));
    if (wrote) wrote(bytes);
  }
}

}  // namespace

Result<uint64_t> byte_size(const TensorToWrite& tensor) {
  uint64_t bytes = numeric::dtype_size(tensor.dtype);
  for (const int64_t extent : tensor.shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes))
      return invalid(tensor, fmt::format("cannot have shape {}", shape_to_string(tensor.shape)));
  return bytes;
}

Result<void> write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                               const SafetensorsMetadata& metadata,
                               const std::function<void(uint64_t bytes)>& wrote) {
  LAGOON_ASSIGN(const std::vector<const TensorToWrite*> order, in_file_order(tensors));
  const std::string header = header_of(order, metadata);
  const std::string partial = path + ".part";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  for (int i = 0; i < 8; ++i)
    file.put(static_cast<char>((uint64_t{header.size()} >> (8 * i)) & 0xffu));
  file << header;
  for (const TensorToWrite* tensor : order) write_tensor(*tensor, file, wrote);
  file.close();
  std::error_code error;
  if (file.fail()) {
    std::filesystem::remove(partial, error);
    return Error{
        ErrorCode::kInternal,
        fmt::format("{} cannot be written: is the folder there, and the disk full?", path)};
  }
  std::filesystem::rename(partial, path, error);
  if (error)
    return Error{ErrorCode::kInternal,
                 fmt::format("{} cannot be renamed to {}: {}", partial, path, error.message())};
  return {};
}

}  // namespace lagoon::checkpoint
