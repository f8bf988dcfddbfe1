// Measures the CUDA backend's kernels on a GPU beside a copy of device memory: bytes of weights, or
// of keys and values, per second, as a fraction of what the copy moves (read plus written). Weights
// are random bytes, in turns from as many places as the second-level cache cannot hold; the
// launches of a turn are one graph. usage: cuda_bench [FILE]    FILE gets the figures as JSON
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr int64_t kPool = int64_t{8} << 30;  // of weights

// For the stream too, which does not wait for the default one.
int copy_now(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpy(to, from, bytes, kind);
  return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

struct Bench {
  Device& device;
  uint8_t* pool;
  double copy_gb_s = 0;
  std::string json;

  // Median seconds of one of `calls` launches made in a row by a graph, the i-th given i.
  double time(int calls, const std::function<void(int)>& launch) const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t steps = nullptr;
    check_device(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeThreadLocal),
                 "a capture");
    for (int i = 0; i < calls; ++i) launch(i);
    check_device(cudaStreamEndCapture(device.stream(), &graph), "a capture");
    check_device(cudaGraphInstantiate(&steps, graph, 0), "a graph");
    cudaEvent_t start = nullptr;
    cudaEvent_t end = nullptr;
    check_device(cudaEventCreate(&start), "an event");
    check_device(cudaEventCreate(&end), "an event");
    std::vector<double> seconds;
    for (int turn = 0; turn < 9; ++turn) {
      check_device(cudaEventRecord(start, device.stream()), "an event");
      check_device(cudaGraphLaunch(steps, device.stream()), "a graph");
      check_device(cudaEventRecord(end, device.stream()), "an event");
      device.wait();
      float milliseconds = 0;
      check_device(cudaEventElapsedTime(&milliseconds, start, end), "an event");
      if (turn > 1) seconds.push_back(1e-3 * milliseconds / calls);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(steps);
    cudaGraphDestroy(graph);
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
  }

  void report(const std::string& what, double seconds, int64_t bytes) {
    const double gb_s = static_cast<double>(bytes) / seconds / 1e9;
    fmt::print("{:<48} {:8.2f} us {:8.0f} GB/s {:5.2f}\n", what, seconds * 1e6, gb_s,
               gb_s / copy_gb_s);
    json += fmt::format(
        "{}\n    {{\"what\": \"{}\", \"us\": {:.3f}, \"gb_s\": {:.1f}, \"of_copy\": {:.3f}}}",
        json.empty() ? "" : ",", what, seconds * 1e6, gb_s, gb_s / copy_gb_s);
  }
};

// Not as a graph, which may leave copies to slower engines.
void measure_copy(Bench& bench) {
  constexpr int kCopies = 20;
  const auto half = static_cast<size_t>(kPool / 2);
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  check_device(cudaEventCreate(&start), "an event");
  check_device(cudaEventCreate(&end), "an event");
  for (int i = -1; i < kCopies; ++i) {
    if (i == 0) check_device(cudaEventRecord(start, bench.device.stream()), "an event");
    check_device(cudaMemcpyAsync(bench.pool, bench.pool + half, half, cudaMemcpyDeviceToDevice,
                                 bench.device.stream()),
                 "a copy");
  }
  check_device(cudaEventRecord(end, bench.device.stream()), "an event");
  bench.device.wait();
  float milliseconds = 0;
  check_device(cudaEventElapsedTime(&milliseconds, start, end), "an event");
  cudaEventDestroy(start);
  cudaEventDestroy(end);
  const double seconds = 1e-3 * milliseconds / kCopies;
  bench.copy_gb_s = 2.0 * static_cast<double>(half) / seconds / 1e9;
  fmt::print("copy: {:.0f} GB/s, read plus written\n", bench.copy_gb_s);
}

int64_t bytes_of(Packing packing, int64_t rows, int64_t columns) {
  const int64_t scales =
      packing == Packing::kNVFP4 ? tiles_of(rows) * units_of(columns) * kUnitScaleBytes : 0;
  return packed_bytes(packing, rows, columns) + scales;
}

// Place `i` among those of the pool that hold `bytes`, and a view of a matrix there.
MatrixView view_at(const Bench& bench, Packing packing, int64_t rows, int64_t columns, int64_t i) {
  const int64_t bytes = (bytes_of(packing, rows, columns) + 4095) / 4096 * 4096;
  MatrixView view;
  view.values = bench.pool + i % (kPool / bytes) * bytes;
  view.scales = view.values + packed_bytes(packing, rows, columns);
  if (packing == Packing::kFP8) view.scales = bench.pool;
  view.rows = static_cast<int32_t>(rows);
  view.columns = static_cast<int32_t>(columns);
  view.packing = packing;
  return view;
}

void measure_products(Bench& bench, const Bits16* x, float* y) {
  struct Case {
    const char* name;
    Packing packing;
    int64_t rows, columns;
  };
  constexpr Case kCases[] = {{"q, 72 heads", Packing::kBFloat16, 9216, 3072},
                             {"k", Packing::kBFloat16, 1024, 3072},
                             {"o, 72 heads", Packing::kBFloat16, 3072, 9216},
                             {"router", Packing::kBFloat16, 256, 3072},
                             {"shared down", Packing::kBFloat16, 3072, 1024},
                             {"dense down", Packing::kBFloat16, 3072, 12288},
                             {"lm_head", Packing::kBFloat16, 100352, 3072},
                             {"q as FP8", Packing::kFP8, 9216, 3072},
                             {"lm_head as NVFP4", Packing::kNVFP4, 100352, 3072}};
  for (const Case& c : kCases) {
    for (const int rows : {1, 7, 8, 16, 32}) {
      const double seconds = bench.time(40, [&](int i) {
        const Product product = {
            .matrix = view_at(bench, c.packing, c.rows, c.columns, i), .y = y, .y_stride = c.rows};
        multiply(bench.device.stream(), &product, 1, x, rows);
      });
      bench.report(fmt::format("{} {} x {}, {} rows", c.name, c.rows, c.columns, rows), seconds,
                   bytes_of(c.packing, c.rows, c.columns));
    }
  }
}

// Rows that choose ten experts each of 256, all different or (7 rows) 43 different ones.
void measure_experts(Bench& bench, const Bits16* x, Bits16* h, float* y) {
  constexpr int kExperts = 256, kTopK = 10;
  constexpr int64_t kInner = 1024, kHidden = 3072;
  constexpr Packing kPacking = Packing::kNVFP4;
  Device& device = bench.device;
  std::vector<ExpertView> views;
  views.reserve(kExperts);
  for (int64_t e = 0; e < kExperts; ++e) {
    views.push_back({view_at(bench, kPacking, kInner, kHidden, 3 * e),
                     view_at(bench, kPacking, kInner, kHidden, 3 * e + 1),
                     view_at(bench, kPacking, kHidden, kInner, 3 * e + 2)});
  }
  auto* table = device.scratch_of<ExpertView>(kExperts);
  check_device(
      copy_now(table, views.data(), views.size() * sizeof(ExpertView), cudaMemcpyHostToDevice),
      "a copy");
  for (const int rows : {1, 4, 7, 16}) {
    // Turns use different experts, so that they are not in the cache.
    constexpr int kTurns = 8;
    const int entries = rows * kTopK;
    std::vector<Routing> routings;
    int64_t distinct = 0;
    std::mt19937 engine(3);
    for (int turn = 0; turn < kTurns; ++turn) {
      std::vector<float> logits(static_cast<size_t>(rows * kExperts));
      for (float& l : logits) l = static_cast<float>(engine() % 100000) / 10000;
      const std::vector<float> bias(kExperts, 0);
      auto* device_logits = device.scratch_of<float>(int64_t{rows} * kExperts);
      auto* device_bias = device.scratch_of<float>(kExperts);
      auto* use = device.scratch_of<int32_t>(2);
      check_device(
          copy_now(device_logits, logits.data(), logits.size() * 4, cudaMemcpyHostToDevice),
          "a copy");
      check_device(copy_now(device_bias, bias.data(), bias.size() * 4, cudaMemcpyHostToDevice),
                   "a copy");
      check_device(cudaMemset(use, 0, 8), "clearing");
      const Routing routing = {.experts = device.scratch_of<int32_t>(entries),
                               .weights = device.scratch_of<float>(entries),
                               .order = device.scratch_of<int32_t>(entries),
                               .slots = device.scratch_of<int32_t>(2 * kExperts + 2),
                               .count = device.scratch_of<int32_t>(1),
                               .views = device.scratch_of<ExpertView>(kExperts)};
      const RouteArgs args = {.logits = device_logits,
                              .bias = device_bias,
                              .table = table,
                              .rows = rows,
                              .experts = kExperts,
                              .top_k = kTopK,
                              .routing = routing,
                              .use = use};
      route(device.stream(), args);
      device.wait();
      int32_t counts[2] = {};
      check_device(copy_now(counts, use, sizeof counts, cudaMemcpyDeviceToHost), "a copy");
      distinct += counts[1];
      routings.push_back(routing);
      if (turn == 0) {
        const double seconds = bench.time(40, [&](int) { route(device.stream(), args); });
        bench.report(fmt::format("route, {} rows", rows), seconds, 0);
      }
    }
    const double experts = static_cast<double>(distinct) / kTurns;
    const int64_t slots = std::min(entries, kExperts);
    const auto bytes = [&](int matrices) {
      return static_cast<int64_t>(experts * matrices *
                                  static_cast<double>(bytes_of(kPacking, kInner, kHidden)));
    };
    double seconds = bench.time(32, [&](int i) {
      expert_gate_and_up(device.stream(), kPacking, kInner, kHidden, routings[i % kTurns], kTopK,
                         slots, x, h);
    });
    bench.report(fmt::format("experts gate and up, {} rows, {:.0f} experts", rows, experts),
                 seconds, bytes(2));
    seconds = bench.time(32, [&](int i) {
      expert_down(device.stream(), kPacking, kInner, kHidden, routings[i % kTurns], slots, h, y);
    });
    bench.report(fmt::format("experts down, {} rows, {:.0f} experts", rows, experts), seconds,
                 bytes(1));
  }
}

void measure_attention(Bench& bench, const Bits16* q, const float* gate, Bits16* out) {
  Device& device = bench.device;
  auto* arrived = device.scratch_of<int32_t>(kMostArrivals);
  check_device(cudaMemsetAsync(arrived, 0, kMostArrivals * 4, device.stream()), "clearing memory");
  for (const bool fp8 : {false, true}) {
    for (const auto& [context, window] :
         {std::pair{2048, 0}, {2048, 512}, {32768, 0}, {131072, 0}}) {
      for (const int rows : {1, 7}) {
        const int heads = window == 0 ? 48 : 72;
        Attention a;
        a.q = q;
        a.cache.kv_heads = 8;
        a.cache.head_dim = 128;
        a.cache.window = window;
        a.cache.block_tokens = window == 0 ? 64 : 528;
        a.cache.fp8 = fp8;
        const int64_t cached = window == 0 ? context : 528;
        const int64_t bytes = cached * 8 * 128 * (fp8 ? 1 : 2);
        std::vector<int32_t> words;  // positions, sequences, offsets, group, pages
        words.reserve(2 * static_cast<size_t>(rows) + 5 + static_cast<size_t>(context) / 64);
        for (int r = 0; r < rows; ++r) words.push_back(context - rows + r);
        words.insert(words.end(), static_cast<size_t>(rows), 0);
        words.push_back(0);
        words.insert(words.end(), {0, rows, 0, context - rows});
        for (int p = 0; p < context / 64; ++p) words.push_back(context / 64 - 1 - p);
        auto* to = device.scratch_of<int32_t>(static_cast<int64_t>(words.size()));
        check_device(copy_now(to, words.data(), words.size() * 4, cudaMemcpyHostToDevice),
                     "a copy");
        const int32_t* offsets = to + int64_t{2} * rows;
        a.rows = {to, to + rows, offsets, offsets + 5, rows};
        a.groups = reinterpret_cast<const Group*>(offsets + 1);
        a.row_count = rows;
        a.heads = heads;
        a.query_tiles = (rows * heads / 8 + kQueryTile - 1) / kQueryTile;
        a.most_chunks = chunks_seen(window, context - 1) + 1;
        a.most_tile_chunks = a.most_chunks;
        a.partial = device.scratch_of<float>(int64_t{rows} * heads * a.most_chunks * 130);
        a.arrived = arrived;
        a.gate = gate;
        a.out = out;
        const double seconds = bench.time(40, [&](int i) {
          a.cache.keys = bench.pool + i % (kPool / (2 * bytes)) * 2 * bytes;
          a.cache.values = a.cache.keys + bytes;
          attend(device.stream(), a);
        });
        bench.report(fmt::format("attention {}, context {}, window {}, {} rows",
                                 fp8 ? "FP8" : "BF16", context, window, rows),
                     seconds,
                     2 * (window == 0 ? bytes : int64_t{window} * 8 * 128 * (fp8 ? 1 : 2)));
      }
    }
  }
}

int run(const char* file) {
  auto opened = Device::open();
  if (!opened.ok()) {
    fmt::print(stderr, "{}\n", opened.error().message);
    return 1;
  }
  Device& device = **opened;
  Bench bench{.device = device, .pool = device.scratch_of<uint8_t>(kPool), .json = {}};
  // Random bytes whose BF16, e4m3 and e2m1 readings are all finite and small.
  std::vector<uint32_t> random(16 << 20);
  std::mt19937 engine(1);
  for (uint32_t& word : random) word = static_cast<uint32_t>(engine()) & 0xbfbfbfbfu;
  for (int64_t at = 0; at < kPool; at += static_cast<int64_t>(random.size() * 4)) {
    check_device(
        copy_now(bench.pool + at, random.data(), random.size() * 4, cudaMemcpyHostToDevice),
        "a copy");
  }
  fmt::print("{}\n", device.name());
  measure_copy(bench);
  auto* x = device.scratch_of<Bits16>(int64_t{32} * 18432);
  auto* h = device.scratch_of<Bits16>(int64_t{32} * 10 * 3072);
  auto* y = device.scratch_of<float>(int64_t{320} * 18432 + int64_t{32} * 100352);
  check_device(copy_now(x, random.data(), size_t{32} * 18432 * 2, cudaMemcpyHostToDevice),
               "a copy");
  check_device(copy_now(h, random.data(), size_t{320} * 3072 * 2, cudaMemcpyHostToDevice),
               "a copy");
  measure_products(bench, x, y);
  measure_experts(bench, x, h, y);
  measure_attention(bench, x, y, h);
  if (file == nullptr) return 0;
  std::FILE* out = std::fopen(file, "w");
  if (out == nullptr) {
    fmt::print(stderr, "{} cannot be written\n", file);
    return 1;
  }
  fmt::print(out,
             "{{\n  \"device\": \"{}\",\n  \"copy_gb_s\": {:.1f},\n  \"kernels\": [{}\n  ]\n}}\n",
             device.name(), bench.copy_gb_s, bench.json);
  return std::fclose(out) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lagoon::kernels::cuda

int main(int count, char** arguments) {
  return lagoon::kernels::cuda::run(count > 1 ? arguments[1] : nullptr);
}
