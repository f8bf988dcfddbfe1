#include "plan/vllm_kv.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace lagoon::plan {
namespace {

constexpr int64_t kBlock = 16;  // positions

int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// 9.6 GiB as "9.6", 1 GiB as "1.0": Python's round(x, 2). Small models need more digits.
std::string rounded_gib(int64_t bytes) {
  const double gib = static_cast<double>(bytes) / (1 << 30);
  if (gib < 0.1) return fmt::format("{:.3g}", gib);
  std::string text = fmt::format("{:.2f}", std::round(gib * 100) / 100);
  if (text.ends_with('0')) text.pop_back();
  return text;
}

}  // namespace

VllmKv::VllmKv(const checkpoint::TargetConfig& target, const checkpoint::DraftConfig* draft,
               kernels::CacheType cache_type, int64_t batched_tokens) {
  int64_t full = draft == nullptr ? 0 : draft->layers;
  int64_t sliding = 0;
  for (const auto& layer : target.layers) ++(layer.sliding ? sliding : full);
  const int64_t least = std::min(full, sliding);
  const int64_t most = std::max(full, sliding);
  // Kinds of nearly equal size are padded to the larger one.
  const bool near = least == 0 || static_cast<double>(most) / static_cast<double>(least) < 1.5;
  const int64_t group = std::max<int64_t>(near ? most : least, 1);
  full_groups_ = ceil_divide(full, group);
  const int64_t sliding_groups = ceil_divide(sliding, group);
  sliding_blocks_ = sliding_groups * (ceil_divide(target.window - 1 + batched_tokens, kBlock) + 1);
  const int64_t element = cache_type == kernels::CacheType::kFP8 ? 1 : 2;
  block_bytes_ = group * 2 * target.kv_heads * target.head_dim * kBlock * element;
}

int64_t VllmKv::blocks_of(int64_t length) const {
  return full_groups_ * ceil_divide(length, kBlock) + sliding_blocks_;
}

double VllmKv::concurrency(int64_t pool_bytes, int64_t length) const {
  return static_cast<double>(blocks(pool_bytes)) / static_cast<double>(blocks_of(length));
}

int64_t VllmKv::tokens(int64_t pool_bytes, int64_t length) const {
  return static_cast<int64_t>(concurrency(pool_bytes, length) * static_cast<double>(length));
}

int64_t VllmKv::longest(int64_t pool_bytes) const {
  const int64_t left = blocks(pool_bytes) - sliding_blocks_;
  return left <= 0 ? 0 : left / std::max<int64_t>(full_groups_, 1) * kBlock;
}

std::string vllm_kv_text(const VllmKv& vllm, int64_t pool_bytes, int64_t length) {
  return fmt::format("{} tokens, Maximum concurrency for {} tokens per request: {:.2f}x",
                     grouped(vllm.tokens(pool_bytes, length)), grouped(length),
                     vllm.concurrency(pool_bytes, length));
}

std::string grouped(int64_t number) {
  std::string text = fmt::format("{}", number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

std::string vllm_too_small(int64_t length, int64_t needed_bytes, int64_t pool_bytes,
                           int64_t longest) {
  return fmt::format(
      "To serve at least one request with the models's max seq len ({}), ({} GiB KV cache is "
      "needed, which is larger than the available KV cache memory ({} GiB). Based on the available "
      "memory, the estimated maximum model length is {}.",
      length, rounded_gib(needed_bytes), rounded_gib(pool_bytes), longest);
}

}  // namespace lagoon::plan
