#include "model/test_support.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "kernels/ref/backend.h"

namespace lagoon::model::testing {

std::string bundled_target() {
  return std::string(LAGOON_SOURCE_DIR) + "/models/laguna-nano-nvfp4";
}

std::string bundled_draft() {
  return std::string(LAGOON_SOURCE_DIR) + "/models/laguna-nano-dflash-nvfp4";
}

namespace {

// A broken fixture leaves a test nothing to do.
[[noreturn]] void give_up(const std::string& message) {
  fmt::print(stderr, "{}\n", message);
  std::abort();
}

}  // namespace

checkpoint::ModelDir open_dir(const std::string& path) {
  auto dir = checkpoint::ModelDir::open(path);
  if (!dir) give_up(dir.error().message);
  return std::move(dir).value();
}

Loaded load_on(std::unique_ptr<kernels::Backend> backend, const std::string& target,
               const std::string& draft, const LoadOptions& options) {
  Loaded loaded{.backend = std::move(backend), .model = nullptr};
  const checkpoint::ModelDir target_dir = open_dir(target);
  std::optional<checkpoint::ModelDir> draft_dir;
  if (!draft.empty()) draft_dir = open_dir(draft);
  auto model = load(target_dir, draft_dir ? &*draft_dir : nullptr, *loaded.backend, options);
  if (!model) give_up(model.error().message);
  loaded.model = std::move(model).value();
  return loaded;
}

Loaded load_reference(kernels::Activations activations, const std::string& target,
                      const std::string& draft, const LoadOptions& options) {
  return load_on(kernels::ref::make_backend(activations, 2), target, draft, options);
}

// ---- Sequences

Sequence::Sequence(Model& model, int slot, int first_page, int page_stride)
    : model_(model), slot_(slot) {
  for (int page = first_page; page < model.info().pages; page += page_stride) {
    pages_.push_back(page);
  }
}

Segment Sequence::segment(const std::vector<int32_t>& tokens, int proposals, Sample sample) const {
  Segment segment;
  segment.slot = slot_;
  segment.position = length_;
  segment.tokens = tokens;
  segment.proposals = proposals;
  segment.sample = sample;
  segment.page_table = pages_;
  return segment;
}

void Sequence::commit(int rows) {
  length_ += rows;
  model_.commit({{Commit{.slot = slot_, .length = length_}}});
}

void Sequence::draft(int32_t anchor, int k) {
  model_.draft({{Anchor{.slot = slot_, .token = anchor, .position = length_}}}, k);
}

SegmentResult Sequence::prefill(const std::vector<int32_t>& prompt, int chunk, Sample sample) {
  SegmentResult all;
  for (size_t begin = 0; begin < prompt.size();) {
    const size_t rows = std::min(prompt.size() - begin, static_cast<size_t>(chunk));
    const auto first = prompt.begin() + static_cast<int64_t>(begin);
    const std::vector<int32_t> tokens(first, first + static_cast<int64_t>(rows));
    begin += rows;
    const bool last = begin == prompt.size();
    const Sample chunk_sample = sample == Sample::kLast && !last ? Sample::kNone : sample;
    std::vector<SegmentResult> results = model_.step({{segment(tokens, 0, chunk_sample)}});
    commit(static_cast<int>(rows));
    const SegmentResult& result = results[0];
    all.tokens.insert(all.tokens.end(), result.tokens.begin(), result.tokens.end());
    all.sampled.insert(all.sampled.end(), result.sampled.begin(), result.sampled.end());
    all.logits.insert(all.logits.end(), result.logits.begin(), result.logits.end());
  }
  return all;
}

std::vector<int32_t> Sequence::decode(int32_t anchor, int k) {
  if (k > 0) draft(anchor, k);
  const std::vector<int32_t> tokens = {anchor};
  const std::vector<SegmentResult> results = model_.step({{segment(tokens, k, Sample::kAll)}});
  const SegmentResult& result = results[0];
  size_t accepted = 0;
  while (accepted < static_cast<size_t>(k) &&
         result.tokens[accepted + 1] == result.sampled[accepted]) {
    ++accepted;
  }
  commit(1 + static_cast<int>(accepted));
  return {result.sampled.begin(), result.sampled.begin() + static_cast<int64_t>(accepted) + 1};
}

std::vector<int32_t> greedy(Model& model, const std::vector<int32_t>& prompt, int count, int k) {
  Sequence sequence(model);
  std::vector<int32_t> tokens =
      sequence.prefill(prompt, model.info().max_rows, Sample::kLast).sampled;
  while (static_cast<int>(tokens.size()) < count) {
    const std::vector<int32_t> next = sequence.decode(tokens.back(), k);
    tokens.insert(tokens.end(), next.begin(), next.end());
  }
  tokens.resize(static_cast<size_t>(count));
  return tokens;
}

// ---- Files

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "lagoon_model_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) give_up("cannot make a temporary directory " + name);
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lagoon::model::testing
