#include "kernels/cpu/cache.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"
#include "numeric/dtype.h"

namespace lagoon::kernels::cpu {

Element element_of(Activations activations, CacheType type) {
  if (type == CacheType::kFP8) return Element::kFP8;
  return activations == Activations::kFloat32 ? Element::kFloat32 : Element::kBFloat16;
}

Cache::Cache(const CacheShape& shape, int64_t entries, Activations activations, CacheType type)
    : shape_(shape),
      activations_(activations),
      element_(element_of(activations, type)),
      dim_((shape.head_dim + kDimMultiple - 1) / kDimMultiple * kDimMultiple),
      tile_bytes_(kTilePositions * dim_ * bytes_of(element_)) {
  CHECK(entries % kTilePositions == 0);
  const int64_t bytes = entries / kTilePositions * shape.kv_heads * tile_bytes_;
  keys_ = allocate(bytes);
  values_ = allocate(bytes);
}

// Zeros, so that padding is; the system gives pages of them when they are first used.
Cache::Memory Cache::allocate(int64_t bytes) {
  Memory memory(static_cast<std::byte*>(std::calloc(static_cast<size_t>(bytes), 1)));
  if (!memory) throw std::bad_alloc();
  return memory;
}

void Cache::store(std::byte* to, float x, float scale) const {
  switch (element_) {
    case Element::kFloat32:
      std::memcpy(to, &x, sizeof x);
      return;
    case Element::kBFloat16: {
      const uint16_t bits = numeric::to_bfloat16(x).bits;
      std::memcpy(to, &bits, sizeof bits);
      return;
    }
    case Element::kFP8:
      if (activations_ == Activations::kBFloat16) x = numeric::round_to_bfloat16(x);
      *to = static_cast<std::byte>(numeric::float_to_e4m3(x / scale));
      return;
  }
}

void Cache::put(int64_t entry, int kv_head, const float* key, const float* value, float k_scale,
                float v_scale) {
  const int64_t at = (entry / kTilePositions * shape_.kv_heads + kv_head) * tile_bytes_;
  const int64_t position = entry % kTilePositions;
  const int64_t pack = pack_of(element_);
  const int64_t element = bytes_of(element_);
  std::byte* keys = keys_.get() + at;
  std::byte* values =
      values_.get() + at + (position / pack * dim_ * pack + position % pack) * element;
  for (int64_t d = 0; d < shape_.head_dim; ++d) {
    const int64_t index = (d / pack * kTilePositions + position) * pack + d % pack;
    store(keys + index * element, key[d], k_scale);
    store(values + d * pack * element, value[d], v_scale);
  }
}

void Cache::describe(int kv_head, Attention& attention) const {
  attention.element = element_;
  attention.dim = dim_;
  attention.keys = keys_.get() + kv_head * tile_bytes_;
  attention.values = values_.get() + kv_head * tile_bytes_;
  attention.tile_stride = shape_.kv_heads * tile_bytes_;
  attention.window = shape_.window;
}

std::vector<TileRun> find_tiles(const Step& step, int window, int32_t sequence, int64_t lowest,
                                int64_t end) {
  // Tiles that certainly follow each other: to the end of a page, or of the ring.
  const int64_t unit = window == 0 ? step.shape().page_tokens : step.ring_positions(window);
  std::vector<TileRun> runs;
  for (int64_t position = lowest / kTilePositions * kTilePositions; position < end;) {
    const int64_t next = std::min(position - position % unit + unit, end);
    const int64_t tiles = (next - position + kTilePositions - 1) / kTilePositions;
    const int64_t index = step.entry(window, sequence, position) / kTilePositions;
    if (!runs.empty() && runs.back().index + runs.back().tiles == index) {
      runs.back().tiles += tiles;
    } else {
      runs.push_back({position, tiles, index});
    }
    position += tiles * kTilePositions;
  }
  return runs;
}

}  // namespace lagoon::kernels::cpu
