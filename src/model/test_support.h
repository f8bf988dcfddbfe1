// What the tests of this folder share: the bundled pair, sequences driven by hand, and checkpoints
// made on the spot.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/model_dir.h"
#include "kernels/ops.h"
#include "model/laguna.h"
#include "model/model.h"
#include "numeric/dtype.h"

namespace lagoon::model::testing {

std::string bundled_target();  // directories
std::string bundled_draft();

// Fails the test, and ends it, where a directory cannot be opened.
checkpoint::ModelDir open_dir(const std::string& path);

// A loaded model with all that must outlive it.
struct Loaded {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<Model> model;
};
// On `backend`; `draft` may be empty. Ends the test on an error.
Loaded load_on(std::unique_ptr<kernels::Backend> backend, const std::string& target,
               const std::string& draft, const LoadOptions& options);
// On the reference backend with two threads.
Loaded load_reference(kernels::Activations activations, const std::string& target,
                      const std::string& draft, const LoadOptions& options = {});

// One sequence in a slot of a model. Its pages are page_stride apart, so that those of several
// sequences can be interleaved: first_page, first_page + page_stride ...
class Sequence {
 public:
  explicit Sequence(Model& model, int slot = 0, int first_page = 0, int page_stride = 1);

  // Computes and commits a prompt in chunks of at most `chunk` rows; the result is that of its last
  // chunk, or with Sample::kAll of all of it.
  SegmentResult prefill(const std::vector<int32_t>& prompt, int chunk, Sample sample);

  // One greedy round after `anchor`, which is the newest token: k proposals are drafted, verified
  // and committed up to the first wrong one. Returns the accepted proposals and the token after
  // them.
  std::vector<int32_t> decode(int32_t anchor, int k);

  // A segment at the end of what is committed; `tokens` must live while it is used.
  Segment segment(const std::vector<int32_t>& tokens, int proposals, Sample sample) const;
  void commit(int rows);
  int32_t length() const { return length_; }
  void draft(int32_t anchor, int k);

 private:
  Model& model_;
  int slot_;
  int32_t length_ = 0;
  std::vector<int32_t> pages_;
};

// `count` greedy tokens after the prompt with k proposals a round.
std::vector<int32_t> greedy(Model& model, const std::vector<int32_t>& prompt, int count, int k);

// A temporary directory, removed with all it holds.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct TensorData {
  numeric::DType dtype = numeric::DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
using TensorMap = std::map<std::string, TensorData>;

TensorData float_tensor(std::vector<int64_t> shape, const std::vector<float>& values);
// Rounds to BF16.
TensorData bfloat16_tensor(std::vector<int64_t> shape, const std::vector<float>& values);

TensorMap read_tensors(const std::string& directory);
// Writes config.json and model.safetensors.
void write_model(const std::string& directory, const std::string& config, const TensorMap& tensors);

// A random Laguna of four small layers: full dense, sliding and full sparse; every size odd enough
// to have partial FP8 blocks.
enum class ExpertFormat { kFloat32, kBFloat16, kFP8, kFP8WithBFloat16Scales, kNVFP4, kMixed };
std::string tiny_config();
// The same weights in every format, which each format holds exactly (small codes, scales that are
// powers of two).
TensorMap tiny_tensors(ExpertFormat format);
// A random draft for it, with taps after layers 0 and 2.
std::string tiny_draft_config();
TensorMap tiny_draft_tensors();

}  // namespace lagoon::model::testing
