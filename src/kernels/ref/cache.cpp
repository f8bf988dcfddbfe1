#include "kernels/ref/cache.h"

#include <algorithm>

#include "base/check.h"
#include "numeric/dtype.h"

namespace lagoon::kernels::ref {

Cache::Cache(const CacheShape& shape, int64_t entries, Activations activations, CacheType type)
    : shape_(shape), activations_(activations), type_(type), positions_(entries, -1) {
  const int64_t values = entries * shape.kv_heads * shape.head_dim;
  for (Store* store : {&keys_, &values_}) {
    if (type == CacheType::kFP8) {
      store->fp8.resize(values);
    } else if (activations == Activations::kFloat32) {
      store->float32.resize(values);
    } else {
      store->bfloat16.resize(values);
    }
  }
}

void Cache::put(int64_t entry, int32_t position, const float* key, const float* value,
                const CacheScales& scales) {
  CHECK(entry >= 0 && entry < entries());
  put(keys_, entry, key, scales.key);
  put(values_, entry, value, scales.value);
  positions_[entry] = position;
}

void Cache::put(Store& store, int64_t entry, const float* x, float scale) const {
  const int64_t n = int64_t{shape_.kv_heads} * shape_.head_dim;
  if (type_ == CacheType::kFP8) {
    uint8_t* codes = store.fp8.data() + entry * n;
    for (int64_t i = 0; i < n; ++i) {
      const float rounded =
          activations_ == Activations::kBFloat16 ? numeric::round_to_bfloat16(x[i]) : x[i];
      codes[i] = numeric::float_to_e4m3(rounded / scale);
    }
    return;
  }
  if (activations_ == Activations::kFloat32) {
    std::copy_n(x, n, store.float32.data() + entry * n);
    return;
  }
  uint16_t* out = store.bfloat16.data() + entry * n;
  for (int64_t i = 0; i < n; ++i) out[i] = numeric::to_bfloat16(x[i]).bits;
}

const float* Cache::key(int64_t entry, int kv_head, float* scratch,
                        const CacheScales& scales) const {
  return get(keys_, entry, kv_head, scratch, scales.key);
}

const float* Cache::value(int64_t entry, int kv_head, float* scratch,
                          const CacheScales& scales) const {
  return get(values_, entry, kv_head, scratch, scales.value);
}

const float* Cache::get(const Store& store, int64_t entry, int kv_head, float* scratch,
                        float scale) const {
  const int64_t first = (entry * shape_.kv_heads + kv_head) * shape_.head_dim;
  if (type_ == CacheType::kFP8) {
    const uint8_t* codes = store.fp8.data() + first;
    for (int i = 0; i < shape_.head_dim; ++i) {
      scratch[i] = numeric::e4m3_to_float(codes[i]) * scale;
    }
    return scratch;
  }
  if (activations_ == Activations::kFloat32) return store.float32.data() + first;
  const uint16_t* bits = store.bfloat16.data() + first;
  for (int i = 0; i < shape_.head_dim; ++i) {
    scratch[i] = numeric::to_float(numeric::BFloat16{bits[i]});
  }
  return scratch;
}

}  // namespace lagoon::kernels::ref
