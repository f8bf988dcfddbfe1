// Keys and values of one layer, in the tiles of kernels/cpu/vectors.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/cpu/vectors.h"
#include "kernels/ops.h"
#include "kernels/step.h"

namespace lagoon::kernels::cpu {

Element element_of(Activations activations, CacheType type);

class Cache {
 public:
  // For `entries` positions (Step::entry), a multiple of kTilePositions. Throws std::bad_alloc.
  Cache(const CacheShape& shape, int64_t entries, Activations activations, CacheType type);

  int kv_heads() const { return shape_.kv_heads; }
  int head_dim() const { return shape_.head_dim; }
  int window() const { return shape_.window; }  // 0: a full layer
  // head_dim with padding.
  int64_t dim() const { return dim_; }

  // Stores one head's key and value [head_dim] of an entry, rounded to the element; those of
  // different entries or heads may be stored by different threads.
  void put(int64_t entry, int kv_head, const float* key, const float* value, float k_scale,
           float v_scale);

  // The fields of `attention` that say where keys and values are.
  void describe(int kv_head, Attention& attention) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;  // [tiles, kv_heads, tile_bytes]
  static Memory allocate(int64_t bytes);
  void store(std::byte* to, float x, float scale) const;

  CacheShape shape_;
  Activations activations_;
  Element element_;
  int64_t dim_;
  int64_t tile_bytes_;  // of a kv head
  Memory keys_, values_;
};

// The tiles of positions [lowest, end) of a sequence.
std::vector<TileRun> find_tiles(const Step& step, int window, int32_t sequence, int64_t lowest,
                                int64_t end);

}  // namespace lagoon::kernels::cpu
