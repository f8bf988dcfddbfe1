// Measures the CPU backend's matrix products beside a plain read of memory and, where it is
// installed, oneDNN: bytes of weights per second for few rows, operations per second for many. All
// of a line is measured in turns, and the best of the turns counts, since other programs take time
// away.
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/matrix.h"
#include "numeric/dtype.h"

#ifdef LAGOON_BENCH_DNNL
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace lagoon::kernels::cpu {
namespace {

struct Options {
  int threads = 1;
  double seconds = 0.2;  // of a turn
  int turns = 5;
};

// Seconds this thread has run: what other programs take from it does not count.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Runs work(thread) on all threads until `seconds` have passed, at least once each; the time of one
// run in seconds, on the slowest thread.
double time_of(const Options& options, const std::function<void(int)>& work) {
  std::vector<double> times(options.threads);
  const auto loop = [&](int thread) {
    const double start = thread_seconds();
    int64_t runs = 0;
    double passed = 0;
    do {
      work(thread);
      ++runs;
      passed = thread_seconds() - start;
    } while (passed < options.seconds);
    times[thread] = passed / static_cast<double>(runs);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < options.threads; ++i) threads.emplace_back(loop, i);
  loop(0);
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(times.begin(), times.end());
}

const char* name_of(Format format) {
  switch (format) {
    case Format::kBFloat16:
      return "BF16";
    case Format::kFloat32:
      return "FP32";
    case Format::kFP8:
      return "FP8";
    case Format::kNVFP4:
      return "NVFP4";
  }
  CHECK(false);
}

// Random codes: of these, products take the same time as of trained ones.
Weight random_weight(Format format, int64_t rows, int64_t columns) {
  std::mt19937 engine(1);
  const int64_t n = rows * columns;
  HostMatrix host{.format = format, .rows = rows, .columns = columns};
  std::vector<std::byte> values;
  std::vector<std::byte> scales;
  const auto fill = [&](auto element, int64_t count, const auto& make) {
    using Element = decltype(element);
    values.resize(count * sizeof(Element));
    auto* to = reinterpret_cast<Element*>(values.data());
    for (int64_t i = 0; i < count; ++i) to[i] = make();
  };
  const auto uniform = [&] { return static_cast<float>(engine() % 2001) / 1000 - 1; };
  switch (format) {
    case Format::kFloat32:
      fill(float{}, n, uniform);
      break;
    case Format::kBFloat16:
      fill(uint16_t{}, n, [&] { return numeric::to_bfloat16(uniform()).bits; });
      break;
    case Format::kFP8:
      fill(uint8_t{}, n, [&] { return numeric::float_to_e4m3(uniform()); });
      scales.resize((rows + 127) / 128 * ((columns + 127) / 128) * sizeof(float));
      std::fill_n(reinterpret_cast<float*>(scales.data()), scales.size() / sizeof(float), 0.5f);
      break;
    case Format::kNVFP4:
      fill(uint8_t{}, n / 2, [&] { return static_cast<uint8_t>(engine()); });
      for (int64_t i = 0; i < n / 16; ++i) scales.push_back(std::byte(0x28 + engine() % 32));
      host.global_scale = 1000;
      break;
  }
  host.values = values.data();
  host.scales = scales.empty() ? nullptr : scales.data();
  Result<Weight> weight = pack(host);
  CHECK(weight.ok());
  return std::move(weight).value();
}

std::vector<float> random_rows(int64_t n) {
  std::mt19937 engine(2);
  std::vector<float> x(n);
  for (float& value : x) {
    value = numeric::round_to_bfloat16(static_cast<float>(engine() % 2001) / 1000 - 1);
  }
  return x;
}

// One product in a loop.
class Case {
 public:
  Case(Format format, int64_t rows, int64_t columns, int m)
      : weight_(random_weight(format, rows, columns)),
        m_(m),
        x_(random_rows(m * columns)),
        y_(m * rows) {}

  const Matrix& matrix() const { return as_matrix(weight_.get()); }

  double run(const Options& options) {
    return time_of(options, [&](int thread) {
      const int64_t panels = matrix().panels();
      multiply(matrix(), x_.data(), matrix().columns(), m_, y_.data(), matrix().rows(),
               panels * thread / options.threads, panels * (thread + 1) / options.threads);
    });
  }

 private:
  Weight weight_;
  int m_;
  std::vector<float> x_, y_;
};

// Sums all of a buffer, in eight streams a thread: one alone keeps too few reads under way.
double read_time(const Options& options, std::span<const uint64_t> buffer) {
  static volatile uint64_t sink = 0;
  return time_of(options, [&](int thread) {
    using Lanes = uint64_t __attribute__((vector_size(32)));
    constexpr int kStreams = 8;
    const int64_t length = static_cast<int64_t>(buffer.size()) / kStreams / options.threads / 8 * 8;
    const uint64_t* from = buffer.data() + int64_t{thread} * kStreams * length;
    Lanes sums[kStreams] = {};
    for (int64_t i = 0; i < length; i += 8) {
      for (int stream = 0; stream < kStreams; ++stream) {
        const auto* line = reinterpret_cast<const Lanes*>(from + stream * length + i);
        sums[stream] += line[0];
        sums[stream] += line[1];
      }
    }
    for (const Lanes& sum : sums) sink = sink + sum[0] + sum[1] + sum[2] + sum[3];
  });
}

void measure_memory(const Options& options, int64_t megabytes) {
  // In large pages, as the weights are.
  constexpr size_t kLargePage = 2 << 20;
  const size_t bytes =
      (static_cast<size_t>(megabytes) << 20) / kLargePage * kLargePage + kLargePage;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(kLargePage, bytes),
                                                           std::free);
  CHECK(memory != nullptr);
  madvise(memory.get(), bytes, MADV_HUGEPAGE);
  const std::span<uint64_t> buffer(static_cast<uint64_t*>(memory.get()), bytes / 8);
  std::fill(buffer.begin(), buffer.end(), 1);
  fmt::print("\n{} MB of weights, [rows, 3072]: GB/s (fraction of a plain read)\n", megabytes);
  fmt::print("{:8}{:>8}", "format", "read");
  constexpr int kRows[] = {1, 2, 4, 7, 8, 16};
  for (const int m : kRows) fmt::print("{:>15}", fmt::format("m = {}", m));
  fmt::print("\n");
  for (const Format format : {Format::kBFloat16, Format::kFP8, Format::kNVFP4, Format::kFloat32}) {
    const double bytes_per_weight = format == Format::kFloat32    ? 4
                                    : format == Format::kBFloat16 ? 2
                                    : format == Format::kFP8      ? 1
                                                                  : 0.5625;
    const int64_t rows =
        static_cast<int64_t>(static_cast<double>(megabytes << 20) / bytes_per_weight / 3072) / 64 *
        64;
    const Weight weight = random_weight(format, rows, 3072);
    const Matrix& matrix = as_matrix(weight.get());
    std::vector<double> best(std::size(kRows), 1e9);
    double best_read = 1e9;
    const std::vector<float> x = random_rows(int64_t{16} * 3072);
    std::vector<float> y(16 * rows);
    for (int turn = 0; turn < options.turns; ++turn) {
      best_read = std::min(best_read, read_time(options, buffer));
      for (size_t i = 0; i < best.size(); ++i) {
        best[i] = std::min(best[i], time_of(options, [&](int thread) {
                             multiply(matrix, x.data(), 3072, kRows[i], y.data(), rows,
                                      matrix.panels() * thread / options.threads,
                                      matrix.panels() * (thread + 1) / options.threads);
                           }));
      }
    }
    const double read = static_cast<double>(buffer.size()) * 8e-9 / best_read;
    fmt::print("{:8}{:8.1f}", name_of(format), read);
    for (const double time : best) {
      const double rate = static_cast<double>(matrix.bytes()) * 1e-9 / time;
      fmt::print("{:>15}", fmt::format("{:.1f} ({:.2f})", rate, rate / read));
    }
    fmt::print("\n");
  }
}

void measure_cached(const Options& options) {
  fmt::print("\nWeights in caches: GB/s\n{:8}{:>14}", "format", "shape");
  constexpr int kRows[] = {1, 2, 4, 7, 16};
  for (const int m : kRows) fmt::print("{:>9}", fmt::format("m = {}", m));
  fmt::print("\n");
  struct Shape {
    Format format;
    int64_t rows, columns;
  };
  for (const Shape& shape : {Shape{Format::kBFloat16, 768, 256},
                             {Format::kBFloat16, 256, 768},
                             {Format::kBFloat16, 1024, 256},
                             {Format::kBFloat16, 4096, 256},
                             {Format::kNVFP4, 128, 256},
                             {Format::kNVFP4, 256, 128},
                             {Format::kFP8, 768, 256}}) {
    fmt::print("{:8}{:>14}", name_of(shape.format),
               fmt::format("{} x {}", shape.rows, shape.columns));
    for (const int m : kRows) {
      Case one(shape.format, shape.rows, shape.columns, m);
      double best = 1e9;
      for (int turn = 0; turn < options.turns; ++turn)
        best = std::min(best, one.run({options.threads, options.seconds / 10, 0}));
      fmt::print("{:9.1f}", static_cast<double>(one.matrix().bytes()) * 1e-9 / best);
    }
    fmt::print("\n");
  }
}

#ifdef LAGOON_BENCH_DNNL
// Y = X W^T with the matrices in the layouts that oneDNN chooses.
class DnnlCase {
 public:
  DnnlCase(dnnl::memory::data_type type, int64_t rows, int64_t columns, int m)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dnnl::memory;
    const memory::desc x({m, columns}, type, memory::format_tag::ab);
    const memory::desc w({columns, rows}, type, memory::format_tag::any);
    const memory::desc y({m, rows}, memory::data_type::f32, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(x, w, y), engine_);
    name_ = description.impl_info_str();
    matmul_ = dnnl::matmul(description);
    arguments_ = {{DNNL_ARG_SRC, memory(description.src_desc(), engine_)},
                  {DNNL_ARG_WEIGHTS, memory(description.weights_desc(), engine_)},
                  {DNNL_ARG_DST, memory(description.dst_desc(), engine_)}};
    for (auto& [index, one] : arguments_) {
      std::fill_n(static_cast<char*>(one.get_data_handle()), one.get_desc().get_size(), char{1});
    }
  }
  const std::string& name() const { return name_; }
  double run(const Options& options) {
    Options alone = options;
    alone.threads = 1;  // it has threads of its own: OMP_NUM_THREADS
    return time_of(alone, [&](int) {
      matmul_.execute(stream_, arguments_);
      stream_.wait();
    });
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::string name_;
};
#endif

void measure_many(const Options& options) {
  constexpr int64_t kRows = 3072, kColumns = 3072;
  fmt::print("\n[{}, {}]: GFLOP/s\n{:8}", kRows, kColumns, "m");
  constexpr Format kFormats[] = {Format::kBFloat16, Format::kFP8, Format::kNVFP4, Format::kFloat32};
  for (const Format format : kFormats) fmt::print("{:>9}", name_of(format));
#ifdef LAGOON_BENCH_DNNL
  fmt::print("{:>14}{:>14}", "oneDNN FP32", "oneDNN BF16");
#endif
  fmt::print("\n");
  std::string names;
  for (const int m : {64, 200, 512}) {
    const double work = 2e-9 * static_cast<double>(kRows * kColumns) * m;
    std::vector<double> best;
    std::vector<std::function<double()>> runs;
    for (const Format format : kFormats) {
      auto one = std::make_shared<Case>(format, kRows, kColumns, m);
      runs.emplace_back([one, &options] { return one->run(options); });
    }
#ifdef LAGOON_BENCH_DNNL
    names.clear();
    for (const auto type : {dnnl::memory::data_type::f32, dnnl::memory::data_type::bf16}) {
      try {
        auto one = std::make_shared<DnnlCase>(type, kRows, kColumns, m);
        names += " " + one->name();
        runs.emplace_back([one, &options] { return one->run(options); });
      } catch (const dnnl::error&) {
        names += " none";
        runs.emplace_back([] { return 1e9; });
      }
    }
#endif
    best.assign(runs.size(), 1e9);
    for (int turn = 0; turn < options.turns; ++turn) {
      for (size_t i = 0; i < runs.size(); ++i) best[i] = std::min(best[i], runs[i]());
    }
    fmt::print("{:<8}", m);
    for (size_t i = 0; i < best.size(); ++i) fmt::print("{:{}.1f}", work / best[i], i < 4 ? 9 : 14);
    fmt::print("\n");
  }
  if (!names.empty()) fmt::print("oneDNN's kernels:{}\n", names);
}

int run(int argc, char** argv) {
  Options options;
  std::string parts = "memory cached many";
  int64_t megabytes = 200;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--threads")
      options.threads = std::max(1, std::atoi(argv[i + 1]));
    else if (name == "--seconds")
      options.seconds = std::atof(argv[i + 1]);
    else if (name == "--turns")
      options.turns = std::max(1, std::atoi(argv[i + 1]));
    else if (name == "--megabytes")
      megabytes = std::max(1, std::atoi(argv[i + 1]));
    else if (name == "--parts")
      parts = argv[i + 1];
    else {
      fmt::print(stderr,
                 "usage: matrix_bench [--threads N] [--seconds S] [--turns N] [--megabytes N] "
                 "[--parts 'memory cached many']; LAGOON_CPU chooses the instruction set\n");
      return 2;
    }
  }
  const Result<void> chosen = select_from_environment();
  if (!chosen.ok()) {
    fmt::print(stderr, "{}\n", chosen.error().message);
    return 2;
  }
  fmt::print("instruction set {}, {} thread(s)\n", name_of(selected()), options.threads);
  if (parts.find("memory") != std::string::npos) measure_memory(options, megabytes);
  if (parts.find("cached") != std::string::npos) measure_cached(options);
  if (parts.find("many") != std::string::npos) measure_many(options);
  return 0;
}

}  // namespace
}  // namespace lagoon::kernels::cpu

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return lagoon::kernels::cpu::run(argc, argv);
}
