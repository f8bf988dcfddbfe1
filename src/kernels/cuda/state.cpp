#include "kernels/cuda/state.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "kernels/cuda/plan.h"

namespace lagoon::kernels::cuda {
namespace {

constexpr int64_t kRopes = 4;
// Sequences that commit one by one before the next step.
constexpr int kContextBuffers = 16;
// Steps below this position are alike.
constexpr int kFewPositions = 1024;
// Rows are blocks of a launch in its second dimension.
constexpr int kMostRows = 65535;
// Rows whose keys go to a ring before any of them attends. A ring for steps of thousands of rows
// would take ten times the memory of the window.
constexpr int kRowsAtOnce = 512;

int64_t element_bytes(const StateShape& shape) {
  return shape.cache_type == CacheType::kFP8 ? 1 : 2;
}

uint8_t* take(std::vector<uint8_t*>& owned, int64_t bytes) {
  uint8_t* memory = take_device_memory(bytes);
  if (memory != nullptr) owned.push_back(memory);
  return memory;
}

Result<void> check_shape(const StateShape& shape) {
  for (const auto* caches : {&shape.full, &shape.sliding}) {
    for (const CacheShape& cache : *caches) {
      if (cache.head_dim == 16 || cache.head_dim == 64 || cache.head_dim == 128) continue;
      return Error{
          ErrorCode::kUnsupported,
          fmt::format("a model with head_dim {} cannot run on a GPU, where it must be 16, 64 "
                      "or 128: use --backend cpu",
                      cache.head_dim)};
    }
  }
  if (shape.max_rows > kMostRows) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("steps of {} rows cannot run on a GPU, where they have at most {}: "
                             "lower --max-num-batched-tokens, or use --backend cpu",
                             shape.max_rows, kMostRows)};
  }
  if (!shape.full.empty() && shape.page_tokens % kKeyBlock != 0) {
    return Error{ErrorCode::kUnsupported,
                 fmt::format("pages of {} positions cannot be used on a GPU, where they must be a "
                             "multiple of {}",
                             shape.page_tokens, kKeyBlock)};
  }
  return {};
}

}  // namespace

CudaState::CudaState(Device& device, const StateShape& shape)
    : device_(device),
      step_(shape, kKeyBlock, kRowsAtOnce),
      upload_(device, 2),
      draws_(device, 2),
      context_(device, kContextBuffers),
      drawn_(device),
      graphs_(device) {}

CudaState::~CudaState() {
  if (device_.collecting == this) device_.collecting = nullptr;
  if (!owned_.empty()) cudaStreamSynchronize(device_.stream());
  for (uint8_t* memory : owned_) give_device_memory(memory);
}

Result<void> CudaState::take_memory() {
  const StateShape& shape = step_.shape();
  const int64_t element = element_bytes(shape);
  Error none = out_of_cache_memory(step_, element);
  none.message += ", or --backend cpu";
  for (const auto* caches : {&shape.full, &shape.sliding}) {
    for (const CacheShape& cache : *caches) {
      CacheView view;
      view.kv_heads = cache.kv_heads;
      view.head_dim = cache.head_dim;
      view.window = cache.window;
      view.block_tokens = static_cast<int32_t>(
          cache.window == 0 ? shape.page_tokens : step_.ring_positions(cache.window));
      view.fp8 = shape.cache_type == CacheType::kFP8;
      const int64_t bytes = step_.entries(cache.window) * cache.kv_heads * cache.head_dim * element;
      view.keys = take(owned_, bytes);
      view.values = view.keys == nullptr ? nullptr : take(owned_, bytes);
      if (view.values == nullptr) return none;
      (cache.window == 0 ? full_ : sliding_).push_back(view);
    }
  }
  const int64_t step_bytes = int64_t{shape.max_rows} * shape.hidden * 4;
  uint8_t* residual = take(owned_, step_bytes);
  uint8_t* taps = take(owned_, step_bytes * shape.taps);
  uint8_t* rotations = take(owned_, kRopes * shape.max_rows * kMostPairs * 2 * 4);
  uint8_t* proposals = take(owned_, int64_t{shape.sequences} * shape.max_rows * 4);
  uint8_t* arrived = take(owned_, (kMostArrivals + kMostChoices) * 4);
  if (residual == nullptr || taps == nullptr || rotations == nullptr || proposals == nullptr ||
      arrived == nullptr) {
    return none;
  }
  residual_ = reinterpret_cast<float*>(residual);
  taps_ = reinterpret_cast<float*>(taps);
  rotations_ = reinterpret_cast<float*>(rotations);
  proposals_ = reinterpret_cast<int32_t*>(proposals);
  arrived_ = reinterpret_cast<int32_t*>(arrived);
  device_.check(cudaMemsetAsync(arrived, 0, (kMostArrivals + kMostChoices) * 4, device_.stream()),
                "clearing memory");
  return {};
}

Result<std::unique_ptr<CudaState>> CudaState::allocate(Device& device, const StateShape& shape) {
  LAGOON_RETURN_IF_ERROR(check_shape(shape));
  std::unique_ptr<CudaState> state(new CudaState(device, shape));
  LAGOON_RETURN_IF_ERROR(state->take_memory());
  return state;
}

Result<void> CudaState::reserve(int64_t positions, std::span<const AttentionLayer> layers) {
  most_positions_ = static_cast<int>(positions);
  for (const AttentionLayer& layer : layers) {
    int64_t& floats = row_floats_[layer.window];
    floats = std::max(floats, int64_t{layer.heads} * (layer.head_dim + 2));
  }
  const StateShape& shape = step_.shape();
  const int64_t rows = shape.max_rows;
  const int64_t groups =
      std::max(ceil_divide(rows, kQueryTile) + shape.sequences, std::min(rows, kMostGraphRows));
  const int64_t pages =
      shape.full.empty() ? 0 : shape.sequences * ceil_divide(positions, shape.page_tokens);
  const int64_t words = 2 + 3 * rows + shape.sequences + 4 * groups + pages;
  if (upload_.reserve(words * 4)) return {};
  return Error{ErrorCode::kResourceExhausted,
               fmt::format("no memory was left for the rows of a step ({} MiB): use fewer "
                           "sequences or a shorter context",
                           (words * 4 >> 20) + 1)};
}

void CudaState::randomize_caches(uint64_t key) {
  if (device_.failed()) return;
  for (const std::vector<CacheView>* caches : {&full_, &sliding_}) {
    for (const CacheView& cache : *caches) {
      const int64_t count = step_.entries(cache.window) * cache.kv_heads * cache.head_dim;
      for (uint8_t* memory : {cache.keys, cache.values}) {
        random_cache(device_.stream(), ++key, cache.fp8, count, memory);
      }
    }
  }
  device_.wait();
}

// One copy: counts, tokens, positions, sequences, offsets of page tables, groups, page tables.
void CudaState::begin(const Batch& batch) {
  const CudaState* draft = batch.proposals == nullptr ? nullptr : &as_cuda(*batch.proposals);
  step_.begin(batch, draft == nullptr ? nullptr : &draft->step_);
  counts_and_tokens_.clear();
  ropes_.clear();
  next_rope_ = 0;
  const StateShape& shape = step_.shape();
  const std::span<const Row> rows = step_.rows();
  groups_ = group_rows(rows, kQueryTile);
  positions_ = 0;
  for (const Row& row : rows) positions_ = std::max(positions_, row.position + 1);
  if (static_cast<int64_t>(rows.size()) <= kMostGraphRows) {
    const int rounded =
        std::max(kFewPositions, static_cast<int>(std::bit_ceil(static_cast<unsigned>(positions_))));
    positions_ =
        most_positions_ > 0 ? std::max(positions_, std::min(rounded, most_positions_)) : rounded;
  }
  const auto count = static_cast<int64_t>(rows.size());
  // As many as there may be, so that what lies behind them has its place whichever they are.
  const auto groups = count <= kMostGraphRows ? count : static_cast<int64_t>(groups_.size());
  std::vector<int64_t> used(static_cast<size_t>(shape.sequences), 0);  // pages that the rows see
  int64_t pages = 0;
  if (!shape.full.empty()) {
    for (const RowGroup& group : groups_) {
      // The last group of a sequence has its last row.
      used[group.sequence] = (group.first_position + group.rows - 1) / shape.page_tokens + 1;
    }
    for (const int64_t of_sequence : used) pages += of_sequence;
  }
  const int64_t words = 2 + 3 * count + shape.sequences + 4 * groups + pages;
  auto* to = reinterpret_cast<int32_t*>(upload_.open(words * 4));
  if (to == nullptr) return;
  int32_t* const start = to;
  *to++ = 0;
  *to++ = 0;
  for (const Row& row : rows) *to++ = row.token;
  for (const Row& row : rows) *to++ = row.position;
  for (const Row& row : rows) *to++ = row.sequence;
  int32_t* offsets = to;
  to += shape.sequences;
  for (const RowGroup& group : groups_) {
    *to++ = static_cast<int32_t>(group.first_row);
    *to++ = static_cast<int32_t>(group.rows);
    *to++ = group.sequence;
    *to++ = group.first_position;
  }
  to = std::fill_n(to, 4 * (groups - static_cast<int64_t>(groups_.size())), 0);
  int32_t next = 0;
  for (int32_t sequence = 0; sequence < shape.sequences; ++sequence) {
    offsets[sequence] = next;
    if (used[sequence] == 0) continue;
    const auto table = batch.page_tables[sequence];
    to = std::copy_n(table.begin(), used[sequence], to);
    next += static_cast<int32_t>(used[sequence]);
  }
  CHECK(to - start == words);
  upload_.send(words * 4);
  use_ = reinterpret_cast<int32_t*>(upload_.mirror());
  int32_t* tokens = use_ + 2;
  const int32_t* groups_at = tokens + 3 * count + shape.sequences;
  view_ = {.positions = tokens + count,
           .sequences = tokens + 2 * count,
           .table_offsets = tokens + 3 * count,
           .pages = groups_at + 4 * groups,
           .rows = count};
  device_groups_ = reinterpret_cast<const Group*>(groups_at);
  if (std::ranges::any_of(rows, [](const Row& row) { return row.token < 0; })) {
    resolve_proposals(device_.stream(), draft->proposals(), tokens, count);
  }
}

uint64_t CudaState::key() const {
  if (rows() == 0 || rows() > kMostGraphRows || device_.failed()) return 0;
  uint64_t key = mix(static_cast<uint64_t>(rows()), static_cast<uint64_t>(positions_));
  // Where the partial results of a layer do not fit one launch, groups decide how they are cut.
  const bool whole =
      !row_floats_.empty() && std::ranges::all_of(row_floats_, [&](const auto& layer) {
        const auto& [window, floats] = layer;
        return rows() * floats * most_chunks_seen(window, positions_) <= kMostPartial &&
               (window == 0 || rows() <= step_.rows_at_once());
      });
  if (!whole) {
    for (const RowGroup& group : groups_) key = mix(key, static_cast<uint64_t>(group.rows));
  }
  key = mix(key, upload_.mirror());
  return key == 0 ? 1 : key;
}

float* CudaState::tap(int tap) const {
  CHECK(tap >= 0 && tap < shape().taps);
  return taps_ + int64_t{tap} * shape().max_rows * shape().hidden;
}

CacheView CudaState::cache(const AttentionLayer& layer) const {
  const std::vector<CacheView>& caches = layer.window == 0 ? full_ : sliding_;
  CHECK(layer.cache >= 0 && layer.cache < static_cast<int>(caches.size()));
  CacheView view = caches[layer.cache];
  CHECK(view.window == layer.window);
  CHECK(view.kv_heads == layer.kv_heads && view.head_dim == layer.head_dim);
  view.k_scale = layer.k_scale;
  view.v_scale = layer.v_scale;
  return view;
}

Frequencies frequencies_of(const Rope& rope) {
  Frequencies frequencies;
  CHECK(rope.inverse_frequencies.size() <= static_cast<size_t>(kMostPairs));
  std::ranges::copy(rope.inverse_frequencies, frequencies.values);
  frequencies.pairs = static_cast<int>(rope.inverse_frequencies.size());
  frequencies.factor = rope.attention_factor;
  return frequencies;
}

const float* CudaState::rotations(const Rope& rope) {
  const int64_t size = int64_t{shape().max_rows} * kMostPairs * 2;
  for (size_t i = 0; i < ropes_.size(); ++i) {
    if (ropes_[i] == &rope) return rotations_ + static_cast<int64_t>(i) * size;
  }
  const size_t at = next_rope_;
  next_rope_ = (next_rope_ + 1) % kRopes;
  if (at == ropes_.size()) ropes_.push_back(nullptr);
  ropes_[at] = &rope;
  float* out = rotations_ + static_cast<int64_t>(at) * size;
  cuda::rotations(device_.stream(), frequencies_of(rope), view_.positions, view_.rows, out);
  return out;
}

CudaState& as_cuda(State& state) {
  auto* cuda = dynamic_cast<CudaState*>(&state);
  CHECK(cuda != nullptr);
  return *cuda;
}

const CudaState& as_cuda(const State& state) {
  const auto* cuda = dynamic_cast<const CudaState*>(&state);
  CHECK(cuda != nullptr);
  return *cuda;
}

}  // namespace lagoon::kernels::cuda
