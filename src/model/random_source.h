// Sources of random weights for the walk of model/weights.cpp (model/random_weights.h tells what
// they hold).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/quantization.h"
#include "kernels/ops.h"
#include "model/random_weights.h"
#include "model/tensor_source.h"

namespace lagoon::model {

// What a source needs to know of the model beyond names, sizes and storage.
struct RandomModel {
  bool fused_qkv = false;     // published drafts store q, k and v as one matrix
  double attention_gain = 1;  // the size of what attention adds to the residual
  float router_bias = 0;      // standard deviation of the experts' selection bias
};

// Of a target. Errors: options that nothing in the model answers to, or that router_bias_for()
// refuses.
Result<RandomModel> random_target_model(const checkpoint::TargetConfig& config,
                                        const RandomOptions& options);
// All rows of a draft's block but the first have the mask as their token: only what they attend to
// makes their proposals differ, so that is most of what they become.
inline RandomModel random_draft_model() {
  return {.fused_qkv = true, .attention_gain = 4};
}

// Lists the tensors that each call stands for and returns null weights.
class RandomSource : public TensorSource {
 public:
  // `scheme` outlives the source.
  RandomSource(const checkpoint::QuantizationScheme& scheme, const RandomModel& model)
      : scheme_(scheme), model_(model) {}

  bool has(const std::string& name) const override;
  Result<kernels::Weight> matrix(const std::string& name, int64_t rows, int64_t columns) override;
  Result<kernels::Weight> vector(const std::string& name, int64_t length) override;
  Result<kernels::Weight> float_vector(const std::string& name, int64_t length) override;
  Result<std::vector<kernels::Weight>> stacked(const std::string& name,
                                               const std::vector<int64_t>& shape,
                                               std::span<const int64_t> rows) override;
  Result<kernels::Weight> expert(const std::string& name, int64_t rows, int64_t columns) override;
  Result<float> scale(const std::string& name) override;

  std::vector<RandomTensor> take() { return std::move(tensors_); }

 protected:
  std::vector<RandomTensor> tensors_;

 private:
  const checkpoint::QuantizationScheme& scheme_;
  const RandomModel model_;
};

// Makes the bytes of the same tensors and hands them to the backend, unless it makes them itself.
class RandomLoader : public RandomSource {
 public:
  RandomLoader(const checkpoint::QuantizationScheme& scheme, const RandomModel& model,
               uint64_t seed, kernels::Backend& backend)
      : RandomSource(scheme, model), seed_(seed), backend_(backend) {}

  Result<kernels::Weight> matrix(const std::string& name, int64_t rows, int64_t columns) override;
  Result<kernels::Weight> vector(const std::string& name, int64_t length) override;
  Result<kernels::Weight> float_vector(const std::string& name, int64_t length) override;
  Result<std::vector<kernels::Weight>> stacked(const std::string& name,
                                               const std::vector<int64_t>& shape,
                                               std::span<const int64_t> rows) override;
  Result<kernels::Weight> expert(const std::string& name, int64_t rows, int64_t columns) override;
  Result<float> scale(const std::string& name) override;

 private:
  // The bytes of tensor i of the last call.
  std::vector<std::byte> make(size_t i) const;
  // Large matrices of the last call as a backend may make them: rows [first_row, first_row + rows).
  // Nothing where they are small, or stored in a way that none makes.
  std::optional<kernels::RandomMatrix> describe(int64_t first_row, int64_t rows,
                                                int64_t columns) const;
  // The weight that the last call's tensors stand for.
  Result<kernels::Weight> prepare(int64_t rows, int64_t columns);

  const uint64_t seed_;
  kernels::Backend& backend_;
};

// The standard deviation of selection biases with which two rows have `overlap` of their experts in
// common, where router scores are sigmoids of about N(0, 1). Found by simulation, which is the same
// on every machine. Errors: an overlap that is not above top_k / experts and at most 0.95.
Result<float> router_bias_for(double overlap, int experts, int top_k);

}  // namespace lagoon::model
