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

__global__ void __launch_bounds__(kThreads)
    route_few_kernel(const __grid_constant__ RouteArgs args) {
  __shared__ RouteMemory memory;
  let_others_start();
  route_few(args, memory,
            [&](int row, float(&values)[kPerLane]) { load_logits(args, row, values); });
}

// Of a row, by blocks of kNormThreads elements, the last of which to come norms it.
__global__ void __launch_bounds__(kNormThreads, 2) add_routed_kernel(AddRouted a, Norm norm) {
  constexpr int kTogether = 10;  // whose results are on the way together
  const int64_t row = blockIdx.y;
  const auto hidden = static_cast<int>(a.hidden);
  const auto thread = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(blockIdx.x) * kNormThreads + thread;
  const NormWeights norm_weights(norm);
  let_others_start();
  // Once for nothing, before the others are done: what is cold is code. Nothing is read then that
  // they write.
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    const bool real = turn == 1;
    if (real) wait_for_others();
    if (real && a.routing.made != nullptr && i == 0 && row == 0) *a.routing.made = 0;
    if (i < hidden) {
      const float* weights = real ? a.routing.weights + row * a.top_k : norm.weight;
      const float* y = real ? a.y + row * a.top_k * hidden + i : norm.weight;
      const int64_t at = row * hidden + i;
      const float before = real ? a.residual[at] : 0;
      const float mlp = real ? a.mlp[at] : 0;
      const int top_k = real || norm.weight != nullptr ? a.top_k : 0;
      const int stride = real ? hidden : 0;
      float sum = 0;
#pragma unroll 1
      for (int first = 0; first < top_k; first += kTogether) {
        float parts[kTogether], factors[kTogether];
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          const bool has = first + j < top_k;
          parts[j] = has ? y[(first + j) * stride] : 0;
          factors[j] = has ? weights[real ? first + j : 0] : 0;
        }
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          if (first + j < top_k) sum = fmaf(factors[j], parts[j], sum);
        }
      }
      const float value = before + fmaf(a.scale, sum, mlp);
      if (real) a.residual[at] = value;
      if (real && a.tap != nullptr) a.tap[at] = value;
    }
    if (norm.out == nullptr) continue;
    if (real && !last_to_come(a.arrived + row, static_cast<int>(gridDim.x))) return;
    const float* x = real ? a.residual + row * hidden : norm.weight;
    NormRow kept;
#pragma unroll
    for (int k = 0; k < NormRow::kKept; ++k) {
      const int n = thread + k * kNormThreads;
      kept.values[k] = n < hidden ? __ldcg(&x[n]) : 0;
    }
    norm_row(norm, x, row, kept, norm_weights, real);
  }
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
  const bool joined = norm.out != nullptr && rows <= kMostArrivals;
  const dim3 grid(static_cast<unsigned>(ceil_divide(args.hidden, kNormThreads)),
                  static_cast<unsigned>(rows));
  start(stream, add_routed_kernel, grid, kNormThreads, 0, args, joined ? norm : Norm());
  if (norm.out != nullptr && !joined) norm_rows(stream, norm, rows);
}

}  // namespace lagoon::kernels::cuda
