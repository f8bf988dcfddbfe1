// The weights of a checkpoint on disk, read and handed to a backend.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/weight_reader.h"
#include "kernels/ops.h"
#include "model/tensor_source.h"

namespace lagoon::model {

// The scales that the reader has at hand, which are those of any real checkpoint (only the e4m3
// scales within NVFP4 tensors are large). An error names file and tensor.
Result<void> check_scales(const checkpoint::ModelDir& dir, const checkpoint::WeightReader& reader,
                          std::span<const ScaleTensor> scales);

// Hands each tensor to the backend as the reader brings it. ModelDir::check() has passed, and the
// reader was started with the order of a TensorList. Errors name file and tensor: it cannot be
// read, a scale breaks its rule, a NaN is among e4m3 codes or scales, the backend does not take it.
class TensorLoader : public DirectorySource {
 public:
  TensorLoader(const checkpoint::ModelDir& dir, checkpoint::WeightReader& reader,
               kernels::Backend& backend)
      : DirectorySource(dir), reader_(reader), backend_(backend) {}

  Result<kernels::Weight> matrix(const std::string& name, int64_t rows, int64_t columns) override;
  Result<kernels::Weight> vector(const std::string& name, int64_t length) override;
  Result<kernels::Weight> float_vector(const std::string& name, int64_t length) override;
  Result<std::vector<kernels::Weight>> stacked(const std::string& name,
                                               const std::vector<int64_t>& shape,
                                               std::span<const int64_t> rows) override;
  Result<kernels::Weight> expert(const std::string& name, int64_t rows, int64_t columns) override;
  Result<float> scale(const std::string& name) override;

 private:
  // What the backend makes of a tensor, or of a part of it.
  Result<kernels::Weight> prepare(const checkpoint::Tensor& tensor,
                                  const kernels::HostMatrix& matrix);
  Result<kernels::Weight> nvfp4(const std::string& name, int64_t rows, int64_t columns);
  Result<kernels::Weight> fp8(const std::string& name, int64_t rows, int64_t columns);

  checkpoint::WeightReader& reader_;
  kernels::Backend& backend_;
};

}  // namespace lagoon::model
