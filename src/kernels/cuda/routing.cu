// The choice of experts for each row, their order, and the sum over what they gave.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"
#include "kernels/cuda/routing.cuh"
#include "kernels/cuda/start.cuh"

namespace lagoon::kernels::cuda {
namespace {

// A block chooses the experts of a row, a thread for each expert: its place is the number of those
// that come before it. A NaN comes last.
__global__ void __launch_bounds__(kMostExperts) choose_kernel(RouteArgs args) {
  const int experts = args.experts;
  const int top_k = args.top_k;
  const Routing& routing = args.routing;
  __shared__ uint64_t ranks[kMostExperts];  // larger comes first: sigmoid + bias, then the index
  __shared__ float scores[kMostExperts];
  __shared__ float chosen[kMostExperts];
  const int expert = threadIdx.x;
  const int64_t row = blockIdx.x;
  uint64_t own = 0;
  let_others_start();
  wait_for_others();
  if (expert < experts) {
    scores[expert] = score_of(args.logits[row * experts + expert], args.softcap);
    own = rank_of(key_of(scores[expert] + args.bias[expert]), expert);
    ranks[expert] = own;
  }
  __syncthreads();
  int place = 0;
  if (expert < experts) {
#pragma unroll 8
    for (int e = 0; e < experts; ++e) place += ranks[e] > own ? 1 : 0;
    if (place < top_k) {
      routing.experts[row * top_k + place] = expert;
      chosen[place] = scores[expert];
    }
  }
  __syncthreads();
  float sum = 0;
  for (int j = 0; j < top_k; ++j) sum += chosen[j];
  for (int j = threadIdx.x; j < top_k; j += blockDim.x) {
    routing.weights[row * top_k + j] = chosen[j] / sum;
  }
}

__global__ void __launch_bounds__(kMostExperts) sort_kernel(RouteArgs args) {
  let_others_start();
  wait_for_others();
  sort_entries(args.routing.experts, static_cast<int>(args.rows) * args.top_k, args);
}

__global__ void __launch_bounds__(kThreads) route_few_kernel(RouteArgs args) {
  let_others_start();
  route_few(args);
}

__global__ void add_routed_kernel(const float* mlp, const float* y, Routing routing, int top_k,
                                  float scale, int64_t hidden, float* residual, float* tap) {
  let_others_start();
  wait_for_others();
  const int64_t row = blockIdx.y;
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= hidden) return;
  float sum = 0;
  for (int j = 0; j < top_k; ++j) {
    const int64_t entry = row * top_k + j;
    sum = fmaf(routing.weights[entry], y[entry * hidden + i], sum);
  }
  const int64_t at = row * hidden + i;
  const float value = residual[at] + fmaf(scale, sum, mlp[at]);
  residual[at] = value;
  if (tap != nullptr) tap[at] = value;
}

}  // namespace

bool routes_in_a_block(const RouteArgs& args) {
  return args.rows <= kWarps && args.top_k <= kLanes && args.experts <= kThreads;
}

void route(Stream stream, const RouteArgs& args) {
  if (routes_in_a_block(args)) {
    start(stream, route_few_kernel, dim3(1), kThreads, 0, args);
    return;
  }
  const auto threads = static_cast<unsigned>(ceil_divide(args.experts, kLanes) * kLanes);
  start(stream, choose_kernel, dim3(static_cast<unsigned>(args.rows)), threads, 0, args);
  start(stream, sort_kernel, dim3(1), threads, 0, args);
}

void add_routed(Stream stream, const float* mlp, const float* y, const Routing& routing, int top_k,
                float scale, int64_t rows, int64_t hidden, float* residual, float* tap) {
  const dim3 grid(static_cast<unsigned>(ceil_divide(hidden, 256)), static_cast<unsigned>(rows));
  start(stream, add_routed_kernel, grid, 256, 0, mlp, y, routing, top_k, scale, hidden, residual,
        tap);
}

}  // namespace lagoon::kernels::cuda
