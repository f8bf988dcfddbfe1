// The device memory of one model: its caches, and the rows of the step in progress.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/cuda/device.h"
#include "kernels/ops.h"
#include "kernels/step.h"

namespace lagoon::kernels::cuda {

class CudaState final : public State {
 public:
  // Errors: no memory; a head_dim or a page size that the kernels do not take.
  static Result<std::unique_ptr<CudaState>> allocate(Device& device, const StateShape& shape);
  ~CudaState() override;

  const StateShape& shape() const { return step_.shape(); }
  Step& step() { return step_; }
  const Step& step() const { return step_; }
  int64_t rows() const { return static_cast<int64_t>(step_.rows().size()); }

  // Takes over the rows and page tables of a step and sends them to the device.
  void begin(const Batch& batch);

  // Of the step, on the device.
  const RowsView& rows_view() const { return view_; }
  const int32_t* tokens() const { return tokens_; }
  const Group* groups() const { return device_groups_; }
  std::span<const RowGroup> host_groups() const { return groups_; }
  // Counts as ExpertUse does, on the device: {layers, distinct}; null before the first step.
  int32_t* expert_use() const { return use_; }
  // The same on the host, once head_sample() has brought it along with the step's tokens.
  const std::optional<ExpertUse>& host_expert_use() const { return host_use_; }
  void keep_expert_use(const ExpertUse& use) { host_use_ = use; }

  // [max_rows, hidden], and [taps, max_rows, hidden].
  float* residual() const { return residual_; }
  float* tap(int tap) const;

  // StateShape::full[index] if window == 0, else StateShape::sliding[index].
  CacheView cache(const AttentionLayer& layer) const;

  // The rotations of the step's rows: computed once a step for each of a few ropes.
  const float* rotations(const Rope& rope);

 private:
  CudaState(Device& device, const StateShape& shape);
  Result<void> take_memory();

  Device& device_;
  Step step_;
  std::vector<RowGroup> groups_;
  std::vector<uint8_t*> owned_;
  std::vector<CacheView> full_, sliding_;
  float* residual_ = nullptr;
  float* taps_ = nullptr;
  float* rotations_ = nullptr;      // [kRopes, max_rows, kMostPairs, 2]
  std::vector<const Rope*> ropes_;  // whose rotations are there
  size_t next_rope_ = 0;
  Upload upload_;
  RowsView view_;
  const int32_t* tokens_ = nullptr;
  const Group* device_groups_ = nullptr;
  int32_t* use_ = nullptr;
  std::optional<ExpertUse> host_use_;
};

// `state` as this backend made it; another backend's is a bug.
CudaState& as_cuda(State& state);
const CudaState& as_cuda(const State& state);

// The frequencies of a rope as a kernel takes them.
Frequencies frequencies_of(const Rope& rope);

}  // namespace lagoon::kernels::cuda
