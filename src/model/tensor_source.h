// Where a model's weights come from. model/weights.cpp walks through a model once per source, so
// each name and shape is written down in one place: with TensorList the walk yields what the
// checkpoint must hold and in which order it is read, with TensorLoader (model/tensor_loader.h) it
// yields packed weights, and the sources of model/random_source.h make a checkpoint of random
// weights.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/quantization.h"
#include "checkpoint/weight_reader.h"
#include "kernels/ops.h"

namespace lagoon::model {

constexpr int64_t kFP8Block = 128;   // rows and columns that share an FP8 scale
constexpr int64_t kNVFP4Group = 16;  // columns that share an NVFP4 scale

// Blocks of that many rows or columns, the last one perhaps partial.
constexpr int64_t fp8_blocks(int64_t n) {
  return (n + kFP8Block - 1) / kFP8Block;
}

class TensorSource {
 public:
  TensorSource() = default;
  virtual ~TensorSource() = default;
  TensorSource(const TensorSource&) = delete;
  TensorSource& operator=(const TensorSource&) = delete;

  // Which of several names and forms the checkpoint uses.
  virtual bool has(const std::string& name) const = 0;

  // A BF16 or FP32 matrix [rows, columns].
  virtual Result<kernels::Weight> matrix(const std::string& name, int64_t rows,
                                         int64_t columns) = 0;
  // A BF16 or FP32 vector [length], as the matrix [1, length].
  virtual Result<kernels::Weight> vector(const std::string& name, int64_t length) = 0;
  // The same, FP32 only.
  virtual Result<kernels::Weight> float_vector(const std::string& name, int64_t length) = 0;
  // A BF16 or FP32 tensor that is several matrices in one: of `shape`, whose last extent is the
  // columns of all and whose others together are the rows, one part's after the other's.
  virtual Result<std::vector<kernels::Weight>> stacked(const std::string& name,
                                                       const std::vector<int64_t>& shape,
                                                       std::span<const int64_t> rows) = 0;
  // A matrix that may be quantised; `name` lacks the suffix, which says how:
  //   NVFP4   .weight_packed U8 [rows, columns / 2], .weight_scale F8_E4M3 [rows, columns / 16],
  //           .weight_global_scale F32 [1] (a divisor); .input_global_scale F32 [1] is for 4-bit
  //           activations and unused
  //   FP8     .weight F8_E4M3, .weight_scale F32 or BF16 [ceil(rows / 128), ceil(columns / 128)]
  //   plain   .weight BF16 or F32
  virtual Result<kernels::Weight> expert(const std::string& name, int64_t rows,
                                         int64_t columns) = 0;
  // A scale [1], BF16 or FP32, that a checkpoint may have; 1 where it has none.
  virtual Result<float> scale(const std::string& name) = 0;
};

// All of a tensor, as what is read.
inline checkpoint::Piece piece_of(const checkpoint::Tensor& tensor) {
  return {tensor.file, tensor.info->offset, tensor.info->bytes};
}
// Of `tensor`, a matrix or several in one: so many rows of `columns` from `first_row` on.
checkpoint::Piece rows_of(const checkpoint::Tensor& tensor, int64_t first_row, int64_t rows,
                          int64_t columns);

// A checkpoint on disk.
class DirectorySource : public TensorSource {
 public:
  explicit DirectorySource(const checkpoint::ModelDir& dir) : dir_(dir) {}
  bool has(const std::string& name) const override { return dir_.find(name).has_value(); }

 protected:
  // How the checkpoint stores the expert matrix of that name.
  checkpoint::Storage storage(const std::string& name) const;

  const checkpoint::ModelDir& dir_;
};

// What a number that scales others must be.
enum class ScaleRule { kPositive, kDivisor, kFinite };

struct ScaleTensor {
  std::string name;
  ScaleRule rule = ScaleRule::kPositive;
};

// Reads nothing and returns null weights; afterwards it has the list of tensors.
class TensorList : public DirectorySource {
 public:
  using DirectorySource::DirectorySource;

  Result<kernels::Weight> matrix(const std::string& name, int64_t rows, int64_t columns) override;
  Result<kernels::Weight> vector(const std::string& name, int64_t length) override;
  Result<kernels::Weight> float_vector(const std::string& name, int64_t length) override;
  Result<std::vector<kernels::Weight>> stacked(const std::string& name,
                                               const std::vector<int64_t>& shape,
                                               std::span<const int64_t> rows) override;
  Result<kernels::Weight> expert(const std::string& name, int64_t rows, int64_t columns) override;
  Result<float> scale(const std::string& name) override;

  const std::vector<checkpoint::ExpectedTensor>& expected() const { return expected_; }
  // What TensorLoader takes, in this order, if ModelDir::check() finds nothing.
  std::vector<checkpoint::Pieces> take_order() { return std::move(order_); }
  // Scales that are floats, in tensors of their own.
  const std::vector<ScaleTensor>& scales() const { return scales_; }

 private:
  // Tensors that are taken together, as far as they are there.
  void read(std::initializer_list<std::string> names);

  std::vector<checkpoint::ExpectedTensor> expected_;
  std::vector<checkpoint::Pieces> order_;
  std::vector<ScaleTensor> scales_;
};

}  // namespace lagoon::model
