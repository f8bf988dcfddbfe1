// The kernel of the shared expert and the choice of the others on the GPU, to the bit what kernels
// of their own give for each part; and that all counters are zeros again. Skipped where there is no
// GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/gpu_test.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matrix.h"
#include "kernels/test_weights.h"
#include "numeric/dtype.h"

namespace lagoon::kernels::cuda {
namespace {

struct Sizes {
  int64_t hidden, inner, experts, top_k;
};

// What either way leaves.
struct Outcome {
  std::vector<Bits16> h;
  std::vector<float> y, weights;
  std::vector<int32_t> experts, order, slots, count, use;
  bool operator==(const Outcome&) const = default;
};

class SharedExpertGpu : public GpuTest {
 protected:
  void make(const Sizes& sizes, int rows) {
    sizes_ = sizes;
    TestRandom random(static_cast<uint32_t>(sizes.hidden + sizes.experts));
    const auto pack = [&](int64_t n, int64_t columns) {
      return Matrix::pack(*device_, random.weight(Format::kBFloat16, n, columns).host()).value();
    };
    gate_ = pack(sizes.inner, sizes.hidden);
    up_ = pack(sizes.inner, sizes.hidden);
    down_ = pack(sizes.hidden, sizes.inner);
    router_ = pack(sizes.experts, sizes.hidden);
    device_->scratch.clear();
    // The last of several rows is all zeros, so that its logits are, too, and all experts equal.
    std::vector<Bits16> x(static_cast<size_t>(rows * padded(sizes.hidden)), 0);
    for (int r = 0; r < std::max(1, rows - 1); ++r) {
      for (int64_t i = 0; i < sizes.hidden; ++i) {
        x[r * padded(sizes.hidden) + i] = numeric::to_bfloat16(random.normal()).bits;
      }
    }
    x_ = to_device(x);
    zeros_ = to_device(std::vector<int32_t>(kRouteZeros, 0));
    made_ = to_device(std::vector<int32_t>(1, 0));
    bias_ = to_device(std::vector<float>(static_cast<size_t>(sizes.experts), 0));
    table_ = to_device(std::vector<ExpertView>(static_cast<size_t>(sizes.experts)));
  }

  // Joint or not; empty where the joint kernel is not for this device.
  Outcome run(int rows, bool joint) {
    const Stream stream = device_->stream();
    const int64_t entries = rows * sizes_.top_k;
    auto* h = to_device(std::vector<Bits16>(rows * padded(sizes_.inner), 1));
    auto* y = to_device(std::vector<float>(rows * sizes_.hidden, 1));
    auto* logits = to_device(std::vector<float>(rows * sizes_.experts, 1));
    auto* use = to_device(std::vector<int32_t>(2, 0));
    const Routing routing = {.experts = to_device(std::vector<int32_t>(entries, -7)),
                             .weights = to_device(std::vector<float>(entries, -7)),
                             .order = to_device(std::vector<int32_t>(entries, -7)),
                             .slots = to_device(std::vector<int32_t>(2 * sizes_.experts + 2, -7)),
                             .count = to_device(std::vector<int32_t>(1, -7)),
                             .views = to_device(std::vector<ExpertView>(sizes_.experts)),
                             .made = joint ? made_ : nullptr};
    const RouteArgs args = {.logits = logits,
                            .bias = bias_,
                            .table = table_,
                            .rows = rows,
                            .experts = static_cast<int>(sizes_.experts),
                            .top_k = static_cast<int>(sizes_.top_k),
                            .routing = routing,
                            .use = use,
                            .zeros = zeros_};
    if (joint) {
      const SharedExpert shared = {.gate = gate_->view(),
                                   .up = up_->view(),
                                   .down = down_->view(),
                                   .router = router_->view(),
                                   .x = x_,
                                   .h = h,
                                   .y = y};
      EXPECT_TRUE(shared_expert_and_route(stream, shared, args));
    } else {
      const Product router = {.matrix = router_->view(), .y = logits, .y_stride = sizes_.experts};
      const Product down = {.matrix = down_->view(), .y = y, .y_stride = sizes_.hidden};
      multiply(stream, &router, 1, x_, rows);
      route(stream, args);
      gate_and_up(stream, gate_->view(), up_->view(), x_, rows, h);
      multiply(stream, &down, 1, h, rows);
    }
    return {.h = from_device(h, rows * padded(sizes_.inner)),
            .y = from_device(y, rows * sizes_.hidden),
            .weights = from_device(routing.weights, entries),
            .experts = from_device(routing.experts, entries),
            .order = from_device(routing.order, entries),
            .slots = from_device(routing.slots, 2 * sizes_.experts + 2),
            .count = from_device(routing.count, 1),
            .use = from_device(use, 2)};
  }

  Sizes sizes_ = {};
  std::unique_ptr<Matrix> gate_, up_, down_, router_;
  Bits16* x_ = nullptr;
  int32_t* zeros_ = nullptr;
  int32_t* made_ = nullptr;
  float* bias_ = nullptr;
  ExpertView* table_ = nullptr;
};

TEST_F(SharedExpertGpu, IsWhatItsPartsGiveAndLeavesZeros) {
  // Columns of one to eight slices; tiles that are not full, and an odd number of them.
  for (const Sizes& sizes : {Sizes{.hidden = 72, .inner = 40, .experts = 5, .top_k = 1},
                             {.hidden = 256, .inner = 128, .experts = 32, .top_k = 4},
                             {.hidden = 816, .inner = 208, .experts = 10, .top_k = 10},
                             {.hidden = 1600, .inner = 100, .experts = 250, .top_k = 8},
                             {.hidden = 3072, .inner = 1024, .experts = 256, .top_k = 10},
                             {.hidden = 3072, .inner = 1024, .experts = 256, .top_k = 32}}) {
    for (const int rows : {1, 2, 5, 8}) {
      SCOPED_TRACE(testing::Message()
                   << sizes.hidden << " columns, " << sizes.experts << " experts, top "
                   << sizes.top_k << ", " << rows << " rows");
      make(sizes, rows);
      const Outcome parts = run(rows, false);
      for (int turn = 0; turn < 3; ++turn) {
        const Outcome joint = run(rows, true);
        EXPECT_EQ(joint.h, parts.h);
        EXPECT_EQ(joint.y, parts.y);
        EXPECT_EQ(joint.experts, parts.experts);
        EXPECT_TRUE(joint == parts);
        EXPECT_EQ(from_device(made_, 1)[0], 1);
        EXPECT_EQ(from_device(zeros_, kRouteZeros), std::vector<int32_t>(kRouteZeros, 0));
      }
    }
  }
}

}  // namespace
}  // namespace lagoon::kernels::cuda
