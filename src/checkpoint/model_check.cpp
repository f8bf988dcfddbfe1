// ModelDir::check: what the directory holds against what the model needs.
#include <fmt/core.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "checkpoint/file.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/weight_index.h"

namespace lagoon::checkpoint {
namespace {

bool same_shape(const std::vector<int64_t>& stored, const std::vector<int64_t>& wanted) {
  if (stored == wanted) return true;
  const auto single = [](const std::vector<int64_t>& shape) {
    return shape.empty() || (shape.size() == 1 && shape[0] == 1);
  };
  return single(stored) && single(wanted);
}

std::string dtype_names(const std::vector<numeric::DType>& dtypes) {
  std::string text;
  for (size_t i = 0; i < dtypes.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : " or ", numeric::dtype_name(dtypes[i]));
  return text;
}

// The first fault of one kind and how many there are.
struct Faults {
  std::string first;
  size_t count = 0;

  void add(std::string text) {
    if (count++ == 0) first = std::move(text);
  }
};

std::string wrong(const Tensor& tensor, const ExpectedTensor& expected) {
  return fmt::format("{}: tensor {} is {} {}, but the model needs {} {}", tensor.file->path(),
                     in_quotes(expected.name), numeric::dtype_name(tensor.info->dtype),
                     shape_to_string(tensor.info->shape), dtype_names(expected.dtypes),
                     shape_to_string(expected.shape));
}

}  // namespace

Result<void> ModelDir::check(std::span<const ExpectedTensor> expected) const {
  Faults missing;
  Faults different;
  Faults unknown;
  std::unordered_set<std::string_view> names;
  names.reserve(expected.size());
  for (const ExpectedTensor& want : expected) {
    names.insert(want.name);
    const std::optional<Tensor> tensor = find(want.name);
    if (!tensor) {
      if (want.required)
        missing.add(fmt::format("{}: tensor {} is missing", path_, in_quotes(want.name)));
      continue;
    }
    const bool known_dtype =
        std::find(want.dtypes.begin(), want.dtypes.end(), tensor->info->dtype) != want.dtypes.end();
    if (!known_dtype || !same_shape(tensor->info->shape, want.shape))
      different.add(wrong(*tensor, want));
  }
  for (const auto& [name, location] : index_)
    if (!names.contains(name))
      unknown.add(fmt::format("{}: tensor {} is not part of this model",
                              tensor_at(location).file->path(), in_quotes(name)));

  // A tensor of another name than expected is both missing and unknown, so that both are told.
  std::string text;
  const auto tell = [&](const Faults& faults, std::string_view more) {
    if (faults.count == 0) return;
    text += fmt::format("{}{}", text.empty() ? "" : "; ", faults.first);
    if (faults.count > 1) text += fmt::format(" (and {} more {})", faults.count - 1, more);
  };
  tell(missing, "are missing");
  if (missing.count > 0) text += unfinished_download_hint(path_);
  tell(different, "differ");
  tell(unknown, "are not");
  if (text.empty()) return {};
  return Error{ErrorCode::kInvalidArgument, text};
}

}  // namespace lagoon::checkpoint
