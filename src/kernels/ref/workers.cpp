#include "kernels/ref/workers.h"

#include <algorithm>

namespace lagoon::kernels::ref {

void Workers::for_each(int64_t count, const std::function<void(int64_t, Buffer&)>& body) {
  const int64_t parts = std::min<int64_t>(pool_.threads(), count);
  pool_.parallel_for(parts, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t item = part; item < count; item += parts) body(item, scratch_[part]);
    }
  });
}

}  // namespace lagoon::kernels::ref
