// Keys and values of one layer.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace lagoon::kernels::ref {

// AttentionLayer::k_scale and v_scale; only FP8 entries have them.
struct CacheScales {
  float key = 1, value = 1;
};

// A number of entries, each the key and value of one position of one sequence. Which entry that is,
// RefState says (state.h). Entries are BF16 or FP32, as the activations are, or FP8
// (kernels/ops.h).
class Cache {
 public:
  Cache(const CacheShape& shape, int64_t entries, Activations activations, CacheType type);

  int kv_heads() const { return shape_.kv_heads; }
  int head_dim() const { return shape_.head_dim; }
  int window() const { return shape_.window; }  // 0: a full layer
  int64_t entries() const { return static_cast<int64_t>(positions_.size()); }

  // Stores the key and value of `position`, [kv_heads, head_dim] each, rounding to the type of the
  // cache. Different entries may be stored by different threads.
  void put(int64_t entry, int32_t position, const float* key, const float* value,
           const CacheScales& scales = {});

  // The position that was stored in an entry last; -1 if none was.
  int32_t position(int64_t entry) const { return positions_[entry]; }

  // The key or value of one head, [head_dim], in `scratch` [head_dim] or in the cache itself.
  const float* key(int64_t entry, int kv_head, float* scratch,
                   const CacheScales& scales = {}) const;
  const float* value(int64_t entry, int kv_head, float* scratch,
                     const CacheScales& scales = {}) const;

 private:
  struct Store {  // [entries, kv_heads, head_dim] in one of the three
    std::vector<uint8_t> fp8;
    std::vector<uint16_t> bfloat16;
    std::vector<float> float32;
  };
  void put(Store& store, int64_t entry, const float* x, float scale) const;
  const float* get(const Store& store, int64_t entry, int kv_head, float* scratch,
                   float scale) const;

  CacheShape shape_;
  Activations activations_;
  CacheType type_;
  Store keys_, values_;
  std::vector<int32_t> positions_;
};

}  // namespace lagoon::kernels::ref
