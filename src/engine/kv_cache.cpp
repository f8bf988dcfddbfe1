#include "engine/kv_cache.h"

#include "base/check.h"

namespace lagoon::engine {

KvCache::KvCache(int pages, int page_tokens) : pages_(pages), page_tokens_(page_tokens) {
  CHECK(pages > 0 && page_tokens > 0);
  free_.reserve(static_cast<size_t>(pages));
  for (int page = pages - 1; page >= 0; --page) free_.push_back(page);  // lowest is taken first
}

bool KvCache::grow(PageTable& table, int64_t positions) {
  const int64_t missing = pages_for(positions) - static_cast<int64_t>(table.pages_.size());
  if (missing > free()) return false;
  for (int64_t i = 0; i < missing; ++i) {
    table.pages_.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void KvCache::release(PageTable& table) {
  free_.insert(free_.end(), table.pages_.rbegin(), table.pages_.rend());
  table.pages_.clear();
}

}  // namespace lagoon::engine
