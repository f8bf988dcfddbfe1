#include "checkpoint/safetensors.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <numeric>
#include <system_error>
#include <utility>

#include "checkpoint/file.h"
#include "checkpoint/page_cache.h"
#include "checkpoint/safetensors_header.h"

namespace lagoon::checkpoint {
namespace {

constexpr uint64_t kLengthBytes = 8;
// The limit of the format's own library; the largest published shard has 1.5 MB of header.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

Result<std::string> read_header(const InputFile& file, std::span<const std::byte> mapping) {
  if (file.size() < kLengthBytes)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} has {} bytes, too few for a safetensors file: download it again",
                             file.path(), file.size())};
  PageCacheGuard guard(file.descriptor(), mapping);
  guard.before_reading(kLengthBytes);
  std::array<char, kLengthBytes> field = {};
  LAGOON_RETURN_IF_ERROR(file.read(0, field));
  uint64_t length = 0;
  for (size_t i = 0; i < field.size(); ++i)
    length |= uint64_t{static_cast<unsigned char>(field[i])} << (8 * i);
  if (length > kMaxHeaderBytes)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is not a safetensors file: it would have a header of {} bytes",
                             file.path(), length)};
  if (length > file.size() - kLengthBytes)
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} is truncated: it has {} bytes and its header alone takes {}, "
                             "download it again",
                             file.path(), file.size(), length + kLengthBytes)};
  guard.before_reading(kLengthBytes + length);
  std::string header(length, '\0');
  LAGOON_RETURN_IF_ERROR(file.read(kLengthBytes, header));
  return header;
}

std::vector<uint32_t> order_by_name(const std::vector<TensorInfo>& tensors) {
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  return order;
}

}  // namespace

int64_t TensorInfo::elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::string shape_to_string(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  LAGOON_ASSIGN(const InputFile file, InputFile::open(path));
  SafetensorsFile result;
  result.path_ = path;
  void* map = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (map == MAP_FAILED)
    return Error{ErrorCode::kInternal, fmt::format("{} cannot be mapped into memory: {}", path,
                                                   std::generic_category().message(errno))};
  result.map_ = static_cast<const std::byte*>(map);
  result.map_bytes_ = file.size();
  LAGOON_ASSIGN(const std::string header, read_header(file, result.mapping()));
  LAGOON_ASSIGN(result.tensors_,
                parse_safetensors_header(header, kLengthBytes + header.size(), file.size(), path));
  result.by_name_ = order_by_name(result.tensors_);
  return result;
}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) ::munmap(const_cast<std::byte*>(map_), map_bytes_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      tensors_(std::move(other.tensors_)),
      by_name_(std::move(other.by_name_)),
      map_(std::exchange(other.map_, nullptr)),
      map_bytes_(std::exchange(other.map_bytes_, 0)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(tensors_, other.tensors_);
  std::swap(by_name_, other.by_name_);
  std::swap(map_, other.map_);
  std::swap(map_bytes_, other.map_bytes_);
  return *this;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto at =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [&](uint32_t i, std::string_view key) { return tensors_[i].name < key; });
  if (at == by_name_.end() || tensors_[*at].name != name) return nullptr;
  return &tensors_[*at];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorInfo& tensor) const {
  CHECK(tensor.offset <= map_bytes_ && tensor.bytes <= map_bytes_ - tensor.offset);
  return {map_ + tensor.offset, tensor.bytes};
}

}  // namespace lagoon::checkpoint
