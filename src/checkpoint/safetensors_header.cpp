#include "checkpoint/safetensors_header.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "checkpoint/file.h"

namespace lagoon::checkpoint {
namespace {

namespace dom = simdjson::dom;

Error invalid(const std::string& path, std::string_view what) {
  return {ErrorCode::kInvalidArgument, fmt::format("{}: {}", path, what)};
}

Error invalid_tensor(const std::string& path, std::string_view tensor, std::string_view what) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{}: tensor {} {}", path, in_quotes(tensor), what)};
}

// Elements of a shape, or nothing where the product does not fit.
std::optional<int64_t> element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape)
    if (__builtin_mul_overflow(count, extent, &count)) return std::nullopt;
  return count;
}

// One tensor's entry {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, offsets still
// relative to the data.
class EntryParser {
 public:
  EntryParser(const std::string& path, std::string_view name) : path_(path), name_(name) {}

  Result<TensorInfo> parse(const dom::element& value) {
    dom::object entry;
    if (value.get(entry) != simdjson::SUCCESS) return fault("is not described by a JSON object");
    TensorInfo tensor;
    tensor.name = std::string(name_);
    bool has_dtype = false;
    bool has_shape = false;
    bool has_offsets = false;
    for (const dom::key_value_pair field : entry) {
      if (field.key == "dtype") {
        if (std::exchange(has_dtype, true)) return fault("has two dtypes");
        LAGOON_ASSIGN(tensor.dtype, dtype(field.value));
      } else if (field.key == "shape") {
        if (std::exchange(has_shape, true)) return fault("has two shapes");
        LAGOON_ASSIGN(tensor.shape, shape(field.value));
      } else if (field.key == "data_offsets") {
        if (std::exchange(has_offsets, true)) return fault("has data_offsets twice");
        LAGOON_RETURN_IF_ERROR(offsets(field.value, tensor));
      } else {
        return fault(
            fmt::format("has the field {}, which the format does not know", in_quotes(field.key)));
      }
    }
    if (!has_dtype) return fault("has no dtype");
    if (!has_shape) return fault("has no shape");
    if (!has_offsets) return fault("has no data_offsets");
    LAGOON_RETURN_IF_ERROR(check_bytes(tensor));
    return tensor;
  }

 private:
  Error fault(std::string_view what) const { return invalid_tensor(path_, name_, what); }

  Result<numeric::DType> dtype(const dom::element& value) const {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) return fault("has a dtype that is not a string");
    const std::optional<numeric::DType> known = numeric::dtype_from_name(text);
    if (!known) return fault(fmt::format("has the unknown dtype {}", in_quotes(text)));
    return *known;
  }

  Result<std::vector<int64_t>> shape(const dom::element& value) const {
    dom::array extents;
    if (value.get(extents) != simdjson::SUCCESS) return fault("has a shape that is not an array");
    std::vector<int64_t> result;
    for (const dom::element extent : extents) {
      int64_t number = 0;
      if (extent.get(number) != simdjson::SUCCESS || number < 0)
        return fault(fmt::format("has the extent {} in its shape, which is not a count",
                                 in_quotes(simdjson::minify(extent))));
      result.push_back(number);
    }
    return result;
  }

  Result<void> offsets(const dom::element& value, TensorInfo& tensor) const {
    dom::array pair;
    uint64_t bounds[2] = {0, 0};
    bool good = value.get(pair) == simdjson::SUCCESS && pair.size() == 2;
    size_t i = 0;
    if (good)
      for (const dom::element bound : pair)
        good = bound.get(bounds[i++]) == simdjson::SUCCESS && good;
    if (!good) return fault("has data_offsets that are not two byte counts");
    if (bounds[0] > bounds[1])
      return fault(
          fmt::format("has data_offsets [{}, {}] that run backwards", bounds[0], bounds[1]));
    tensor.offset = bounds[0];
    tensor.bytes = bounds[1] - bounds[0];
    return {};
  }

  Result<void> check_bytes(const TensorInfo& tensor) const {
    const std::optional<int64_t> count = element_count(tensor.shape);
    uint64_t bytes = 0;
    if (!count || __builtin_mul_overflow(static_cast<uint64_t>(*count),
                                         numeric::dtype_size(tensor.dtype), &bytes))
      return fault(fmt::format("has shape {}, more elements than can be counted",
                               shape_to_string(tensor.shape)));
    if (bytes != tensor.bytes)
      return fault(fmt::format("has {} bytes, but {} of shape {} takes {}", tensor.bytes,
                               numeric::dtype_name(tensor.dtype), shape_to_string(tensor.shape),
                               bytes));
    return {};
  }

  const std::string& path_;
  std::string_view name_;
};

// Tensors sorted by offset must lie end to end and fill the data, `data_bytes` long.
Result<void> check_layout(const std::vector<TensorInfo>& tensors, uint64_t data_bytes,
                          const std::string& path) {
  uint64_t end = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    if (tensor.offset < end)
      return invalid_tensor(path, tensor.name,
                            fmt::format("overlaps tensor {}", in_quotes(tensors[i - 1].name)));
    if (tensor.offset > end)
      return invalid_tensor(path, tensor.name,
                            fmt::format("begins {} bytes after the one before it ends: the "
                                        "format allows no gaps",
                                        tensor.offset - end));
    end = tensor.offset + tensor.bytes;
    if (end > data_bytes)
      return invalid_tensor(
          path, tensor.name,
          fmt::format("ends at byte {} of the data, but the file holds only {}: it is truncated, "
                      "download it again",
                      end, data_bytes));
  }
  if (end < data_bytes)
    return invalid(path, fmt::format("{} bytes follow the last tensor, which the header does not "
                                     "describe",
                                     data_bytes - end));
  return {};
}

Result<void> check_names(const std::vector<TensorInfo>& tensors, const std::string& path) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return invalid_tensor(path, *twice, "is there twice");
  return {};
}

// Metadata is free text: an object whose values are strings.
Result<void> check_metadata(const dom::element& value, const std::string& path) {
  dom::object metadata;
  bool good = value.get(metadata) == simdjson::SUCCESS;
  if (good)
    for (const dom::key_value_pair field : metadata) good = field.value.is_string() && good;
  if (!good) return invalid(path, "__metadata__ of the header is not an object of strings");
  return {};
}

}  // namespace

Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header,
                                                         uint64_t data_start, uint64_t file_bytes,
                                                         const std::string& path) {
  CHECK(data_start <= file_bytes);
  dom::parser parser;
  dom::element root;
  if (const auto error = parser.parse(header.data(), header.size()).get(root))
    return invalid(path,
                   fmt::format("the header is not valid JSON: {}", simdjson::error_message(error)));
  dom::object entries;
  if (root.get(entries) != simdjson::SUCCESS)
    return invalid(path, "the header is not a JSON object");

  std::vector<TensorInfo> tensors;
  bool has_metadata = false;
  for (const dom::key_value_pair entry : entries) {
    if (entry.key == "__metadata__") {
      if (std::exchange(has_metadata, true)) return invalid(path, "__metadata__ is there twice");
      LAGOON_RETURN_IF_ERROR(check_metadata(entry.value, path));
      continue;
    }
    LAGOON_ASSIGN(TensorInfo tensor, EntryParser(path, entry.key).parse(entry.value));
    tensors.push_back(std::move(tensor));
  }
  LAGOON_RETURN_IF_ERROR(check_names(tensors, path));
  // Empty tensors take no room, so that they come before what begins at the same byte.
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  LAGOON_RETURN_IF_ERROR(check_layout(tensors, file_bytes - data_start, path));
  for (TensorInfo& tensor : tensors) tensor.offset += data_start;
  return tensors;
}

}  // namespace lagoon::checkpoint
