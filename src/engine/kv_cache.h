// Which sequence holds which pages of the model's key and value cache. Book-keeping only: page ids,
// no memory. Not thread-safe: the engine's thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lagoon::engine {

// The pages of one sequence, in order of position. Filled and emptied by KvCache alone.
class PageTable {
 public:
  std::span<const int32_t> pages() const { return pages_; }

 private:
  friend class KvCache;
  std::vector<int32_t> pages_;
};

class KvCache {
 public:
  // Pages 0..pages-1, each of `page_tokens` positions.
  KvCache(int pages, int page_tokens);

  // Gives the table pages until it covers positions 0..positions-1; false, and nothing changes, if
  // there are not enough.
  [[nodiscard]] bool grow(PageTable& table, int64_t positions);
  // Takes back all pages of the table.
  void release(PageTable& table);

  // Pages that `positions` take.
  int64_t pages_for(int64_t positions) const {
    return (positions + page_tokens_ - 1) / page_tokens_;
  }
  // Positions that the table could cover if it took all pages that are free.
  int64_t reach(const PageTable& table) const {
    return static_cast<int64_t>(table.pages_.size() + free_.size()) * page_tokens_;
  }

  int pages() const { return pages_; }
  int free() const { return static_cast<int>(free_.size()); }
  int used() const { return pages_ - free(); }

 private:
  int pages_;
  int page_tokens_;
  std::vector<int32_t> free_;
};

}  // namespace lagoon::engine
