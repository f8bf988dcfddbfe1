// The choice of experts for each row, their order, and the sum over what they gave.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/norm.cuh"
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
  __shared__ RouteMemory memory;
  let_others_start();
  const RouteBiases biases(args);
  wait_for_others();
  route_few(args, biases, memory);
}

// Of a row, by a block. A thread has the elements that it has in norm_kernel, two at a time, with
// what up to kTogether experts gave for them on the way together. In few registers, and in little
// code, which is cold each time.
__global__ void __launch_bounds__(kNormThreads, 2) add_routed_kernel(AddRouted a, Norm norm) {
  constexpr int kTogether = 10;
  __shared__ float weights[kMostExperts];
  __shared__ float sums_of_row[NormRow::kFirstRest];
  const int64_t row = blockIdx.x;
  const int64_t hidden = a.hidden;
  const int thread = threadIdx.x;
  let_others_start();
  wait_for_others();
  for (int j = thread; j < a.top_k; j += kNormThreads) {
    weights[j] = a.routing.weights[row * a.top_k + j];
  }
  const float* y = a.y + row * a.top_k * hidden;
  float* residual = a.residual + row * hidden;
  __syncthreads();
#pragma unroll 1
  for (int64_t i = thread; i < hidden; i += 2 * kNormThreads) {
    const bool has_second = i + kNormThreads < hidden;
    const int64_t at[2] = {i, has_second ? i + kNormThreads : i};
    float before[2], mlp[2], sums[2] = {};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      before[n] = residual[at[n]];
      mlp[n] = a.mlp[row * hidden + at[n]];
    }
    for (int first = 0; first < a.top_k; first += kTogether) {
      float parts[kTogether][2];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          parts[j][n] = first + j < a.top_k ? y[(first + j) * hidden + at[n]] : 0;
        }
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        if (first + j >= a.top_k) break;
#pragma unroll
        for (int n = 0; n < 2; ++n) sums[n] = fmaf(weights[first + j], parts[j][n], sums[n]);
      }
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      if (n == 1 && !has_second) break;
      const float value = before[n] + fmaf(a.scale, sums[n], mlp[n]);
      residual[at[n]] = value;
      if (a.tap != nullptr) a.tap[row * hidden + at[n]] = value;
      if (at[n] < NormRow::kFirstRest) sums_of_row[at[n]] = value;
    }
  }
  if (norm.out == nullptr) return;
  const NormWeights norm_weights(norm);
  NormRow kept;
#pragma unroll
  for (int k = 0; k < NormRow::kKept; ++k) {
    const int64_t i = thread + k * kNormThreads;
    kept.values[k] = i < hidden ? sums_of_row[i] : 0;
  }
  norm_row(norm, residual, row, kept, norm_weights);
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

void add_routed(Stream stream, const AddRouted& args, const Norm& norm, int64_t rows) {
  start(stream, add_routed_kernel, dim3(static_cast<unsigned>(rows)), kNormThreads, 0, args, norm);
}

}  // namespace lagoon::kernels::cuda
