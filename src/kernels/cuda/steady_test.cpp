// What holds once a server has started: steps take no memory of the device, and a device that is
// lost is an error, not the end of the program. Skipped where there is no GPU.
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/layer_rig.h"

namespace lagoon::kernels::cuda {
namespace {

bool has_gpu() {
  return cuda::make_backend(Activations::kBFloat16).ok();
}

// Everything that a row can ask for.
struct Wishes {
  std::vector<LogitBias> bias;
  std::vector<int32_t> banned;
  std::vector<SeenToken> seen;
  std::vector<uint32_t> allowed;
  LogitRules rules;
  Wishes() : allowed((Layer::kVocab + 31) / 32, 0xfffffffe) {
    for (int32_t token = 0; token < Layer::kVocab; ++token) {
      bias.push_back({token, 0.5f});
      banned.insert(banned.end(), 3, token);  // named more than once
      seen.push_back({token, token % 3});
    }
    rules.bias = bias;
    rules.banned = banned;
    rules.banned_before = 40;
    rules.repetition = 1.1f;
    rules.seen = seen;
  }
};

// A step of rows that all ask for `logprobs` log-probabilities, and for everything else if `wishes`
// is not null.
void ask_for_all(Runner& runner, int first, int count, const Wishes* wishes, int logprobs) {
  runner.run(first, count, false);
  std::vector<SampleRow> asked(static_cast<size_t>(count));
  size_t entries = 0;
  for (int r = 0; r < count; ++r) {
    asked[r].row = r;
    asked[r].logprobs = logprobs;
    asked[r].sampling = {.temperature = 1, .top_k = 0, .top_p = 0.9f, .seed = 1};
    if (wishes != nullptr) {
      asked[r].rules = &wishes->rules;
      asked[r].allowed = wishes->allowed;
    }
    entries += static_cast<size_t>(logprobs + 1);
  }
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::vector<TokenLogprob> found(entries);
  runner.backend().head_sample(runner.state(), runner.head(), asked,
                               {.tokens = tokens, .logprobs = found});
}

TEST(SteadyGpu, StepsTakeNoMemory) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  const Wishes wishes;
  constexpr int kRows = 700;  // more than a ring takes at once
  for (const CacheType cache : {CacheType::kActivations, CacheType::kFP8}) {
    for (const Shape& shape : {kPairFull, kPairSliding, kElements, kAlone, kWide, kSliding}) {
      Runner runner(gpu(), shape, cache, 2000, kRows);
      ASSERT_TRUE(runner.reserve().ok());
      const Counters before = counters(runner.backend());
      int position = 0;
      for (const int rows : {1, kRows, 2, 3, 8, 9, 16, 64, 65, 300, 512, 7, 1}) {
        runner.run(position, rows);
        ask_for_all(runner, position, rows, nullptr, 5);
        ask_for_all(runner, position, rows, &wishes, Layer::kVocab);
        position += rows;
      }
      EXPECT_EQ(counters(runner.backend()).memory_calls, before.memory_calls) << shape.name;
      EXPECT_EQ(runner.backend().failure(), nullptr);
    }
  }
}

// Before the first step, with a sentence; and what is too much once may fit another time.
TEST(SteadyGpu, TooLittleMemoryIsASentence) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  Runner runner(gpu(), kSliding, CacheType::kFP8, 500, 8192);
  size_t free = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  uint8_t* others = take_device_memory(static_cast<int64_t>(free) - (int64_t{600} << 20));
  ASSERT_NE(others, nullptr);
  const auto reserved = runner.reserve();
  ASSERT_FALSE(reserved.ok());
  EXPECT_EQ(reserved.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(reserved.error().message.find("MiB are free"), std::string::npos)
      << reserved.error().message;
  EXPECT_EQ(runner.backend().failure(), nullptr);
  give_device_memory(others);
  EXPECT_TRUE(runner.reserve().ok());
  runner.run(0, 40);
  EXPECT_EQ(runner.backend().failure(), nullptr);
}

TEST(SteadyGpu, GateAndUpInTwoFormatsAreASentence) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  const std::unique_ptr<Backend> backend = gpu();
  Layer layer(*backend, kPairSliding);
  const TestWeight other =
      quick_weight(Format::kBFloat16, kPairSliding.expert_inner, kPairSliding.hidden, 0.1f, 7);
  layer.ffn.experts[2].up = backend->prepare(other.host()).value();
  const std::unique_ptr<State> state =
      backend
          ->allocate({.hidden = kPairSliding.hidden,
                      .vocab = Layer::kVocab,
                      .max_rows = 8,
                      .sequences = 1,
                      .full = {},
                      .sliding = {{kPairSliding.kv_heads, kPairSliding.head_dim, 128}}})
          .value();
  const auto reserved = backend->reserve(*state, {.embedding = layer.table.get(),
                                                  .attention = std::span(&layer.attention, 1),
                                                  .ffn = std::span(&layer.ffn, 1),
                                                  .head = &layer.head,
                                                  .positions = 100});
  ASSERT_FALSE(reserved.ok());
  EXPECT_EQ(reserved.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(reserved.error().message.find("expert 2"), std::string::npos)
      << reserved.error().message;
}

TEST(SteadyGpu, AStepOfEveryKindIsOneWait) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  const Wishes wishes;
  Runner runner(gpu(), kPairSliding, CacheType::kFP8, 2000, 16);
  ASSERT_TRUE(runner.reserve().ok());
  for (int position = 0; position < 160; position += 16) {
    const int64_t before = counters(runner.backend()).waits;
    ask_for_all(runner, position, 16, position % 32 == 0 ? &wishes : nullptr, 20);
    EXPECT_EQ(counters(runner.backend()).waits, before + 1);
    EXPECT_GE(runner.expert_use().distinct, kPairSliding.top_k);  // known without another
    EXPECT_EQ(counters(runner.backend()).waits, before + 1);
  }
}

// Proposals that nobody asks for are drawn without a wait and stand in the next step all the same.
TEST(SteadyGpu, ProposalsStayOnTheDevice) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  Runner runner(gpu(), kPairFull, CacheType::kActivations, 500, 16);
  const std::vector<SampleRow> asked = {{3, {}}, {1, {}}, {2, {}}};  // in any order
  std::vector<int32_t> drawn(3);
  runner.run(0, 4, false);
  runner.backend().head_sample(runner.state(), runner.head(), asked, {.tokens = drawn});
  runner.run(0, 4, false);
  const int64_t before = counters(runner.backend()).waits;
  runner.backend().head_sample(runner.state(), runner.head(), asked, {.tokens = {}});
  EXPECT_EQ(counters(runner.backend()).waits, before);
  const std::vector<Row> rows = {
      {7, 4, 0}, {Row::proposal(0), 5, 0}, {Row::proposal(2), 6, 0}, {Row::proposal(1), 7, 0}};
  const std::vector<std::span<const int32_t>> tables = {runner.pages()};
  runner.backend().begin(runner.state(), {rows, tables, &runner.state()});
  std::vector<int32_t> tokens(4);
  runner.backend().read_tokens(runner.state(), tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{7, drawn[1], drawn[0], drawn[2]}));
}

// Whatever the machine.
TEST(CudaBackend, RefusesActivationsInFP32) {
  const auto backend = cuda::make_backend(Activations::kFloat32);
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(backend.error().message.find("FP32"), std::string::npos) << backend.error().message;
}

using SteadyGpuDeathTest = testing::Test;

// In a process of its own, which loses its device for good.
TEST(SteadyGpuDeathTest, ALostDeviceIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  const auto lose_and_go_on = [] {
    Runner runner(gpu(), kPairSliding, CacheType::kFP8, 500, 16);
    runner.run(0, 5);
    if (runner.backend().failure() != nullptr) std::exit(2);
    MatrixView nowhere;
    nowhere.values = reinterpret_cast<const uint8_t*>(16);
    nowhere.rows = nowhere.columns = 16;
    float* out = reinterpret_cast<float*>(take_device_memory(4096));
    read_rows(nullptr, nowhere, reinterpret_cast<const int32_t*>(out), 1, out);
    cudaDeviceSynchronize();
    runner.run(5, 5);  // returns
    const Error* failure = runner.backend().failure();
    if (failure == nullptr) std::exit(3);
    const std::string first = failure->message;
    runner.run(10, 5);
    ask_for_all(runner, 15, 3, nullptr, 4);
    std::vector<int32_t> tokens(3);
    runner.backend().read_tokens(runner.state(), tokens);
    runner.expert_use();
    if (runner.backend().failure()->message != first) std::exit(4);
    if (runner.backend()
            .allocate(StateShape{.hidden = 16,
                                 .vocab = 16,
                                 .max_rows = 1,
                                 .sequences = 1,
                                 .full = {},
                                 .sliding = {}})
            .ok()) {
      std::exit(5);
    }
    fmt::print(stderr, "{}\n", first);
    std::exit(0);
  };
  EXPECT_EXIT(lose_and_go_on(), testing::ExitedWithCode(0), "the GPU .* failed at .*nvidia-smi");
}

}  // namespace
}  // namespace lagoon::kernels::cuda
