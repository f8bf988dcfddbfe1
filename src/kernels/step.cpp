#include "kernels/step.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lagoon::kernels {
namespace {

void check_shape(const StateShape& shape) {
  CHECK(shape.hidden > 0 && shape.vocab > 0 && shape.taps >= 0);
  CHECK(shape.max_rows > 0 && shape.sequences > 0 && shape.block_rows >= 0);
  CHECK(shape.full.empty() || (shape.pages > 0 && shape.page_tokens > 0));
  for (const CacheShape& cache : shape.full) {
    CHECK(cache.kv_heads > 0 && cache.head_dim > 0 && cache.window == 0);
  }
  for (const CacheShape& cache : shape.sliding) {
    CHECK(cache.kv_heads > 0 && cache.head_dim > 0 && cache.window > 0);
  }
}

}  // namespace

int64_t lowest_seen(int window, int64_t position) {
  return window == 0 ? 0 : std::max<int64_t>(0, position - window + 1);
}

std::vector<RowGroup> group_rows(std::span<const Row> rows, int64_t most) {
  std::vector<RowGroup> groups;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (groups.empty() || groups.back().sequence != rows[i].sequence ||
        groups.back().rows == most) {
      groups.push_back({static_cast<int64_t>(i), 0, rows[i].sequence, rows[i].position});
    }
    ++groups.back().rows;
  }
  return groups;
}

Step::Step(const StateShape& shape, int ring_multiple, int most_at_once)
    : shape_(shape),
      ring_multiple_(ring_multiple),
      rows_at_once_(std::min(shape.max_rows, most_at_once)),
      page_tables_(shape.sequences),
      proposals_(shape.sequences) {
  check_shape(shape);
}

void Step::begin(const Batch& batch, const Step* draft) {
  CHECK(batch.rows.size() <= static_cast<size_t>(shape_.max_rows));
  rows_.assign(batch.rows.begin(), batch.rows.end());
  expert_use_ = {};
  for (Row& row : rows_) {
    CHECK(row.sequence >= 0 && row.sequence < shape_.sequences);
    if (row.token >= 0) continue;
    CHECK(draft != nullptr && row.sequence < draft->shape_.sequences);
    const std::vector<int32_t>& proposals = draft->proposals_[row.sequence];
    const int64_t j = -1 - int64_t{row.token};  // Row::proposal(j) == row.token
    CHECK(j < static_cast<int64_t>(proposals.size()));
    row.token = proposals[j];
  }
  CHECK(batch.page_tables.size() <= page_tables_.size());
  for (size_t slot = 0; slot < page_tables_.size(); ++slot) {
    const auto table =
        slot < batch.page_tables.size() ? batch.page_tables[slot] : std::span<const int32_t>{};
    page_tables_[slot].assign(table.begin(), table.end());
  }
  check_rows();
}

void Step::check_rows() const {
  std::vector<bool> seen(shape_.sequences, false);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    CHECK(row.token < shape_.vocab && row.position >= 0);  // begin() resolved negative ones
    if (i > 0 && rows_[i - 1].sequence == row.sequence) {
      CHECK(row.position == rows_[i - 1].position + 1);
    } else {
      CHECK(!seen[row.sequence]);
      seen[row.sequence] = true;
    }
    if (shape_.full.empty()) continue;
    const std::vector<int32_t>& pages = page_tables_[row.sequence];
    const size_t page = row.position / shape_.page_tokens;
    CHECK(page < pages.size() && pages[page] >= 0 && pages[page] < shape_.pages);
  }
}

int64_t Step::ring_positions(int window) const {
  const int64_t least = int64_t{window} + rows_at_once_ + shape_.block_rows;
  return (least + ring_multiple_ - 1) / ring_multiple_ * ring_multiple_;
}

int64_t Step::entries(int window) const {
  return window == 0 ? int64_t{shape_.pages} * shape_.page_tokens
                     : shape_.sequences * ring_positions(window);
}

int64_t Step::entry(int window, int32_t sequence, int64_t position) const {
  if (window > 0) {
    const int64_t ring = ring_positions(window);
    return sequence * ring + position % ring;
  }
  const int32_t page = page_tables_[sequence][position / shape_.page_tokens];
  return int64_t{page} * shape_.page_tokens + position % shape_.page_tokens;
}

void Step::keep_proposals(std::span<const SampleRow> asked, std::span<const int32_t> tokens) {
  std::vector<std::pair<int32_t, int32_t>> by_row;  // row, token
  for (size_t i = 0; i < asked.size(); ++i) {
    by_row.emplace_back(asked[i].row, tokens[i]);
    proposals_[rows_[asked[i].row].sequence].clear();
  }
  std::sort(by_row.begin(), by_row.end());
  for (const auto& [row, token] : by_row) proposals_[rows_[row].sequence].push_back(token);
}

std::vector<int32_t> Step::keep_places(std::span<const SampleRow> asked) {
  std::vector<std::pair<int32_t, size_t>> by_row;  // row, index
  for (size_t i = 0; i < asked.size(); ++i) {
    by_row.emplace_back(asked[i].row, i);
    proposals_[rows_[asked[i].row].sequence].clear();
  }
  std::sort(by_row.begin(), by_row.end());
  std::vector<int32_t> places(asked.size());
  for (const auto& [row, i] : by_row) {
    const int32_t sequence = rows_[row].sequence;
    std::vector<int32_t>& proposals = proposals_[sequence];
    const auto j = static_cast<int32_t>(proposals.size());
    CHECK(j < shape_.max_rows);  // a row is asked for once
    places[i] = sequence * shape_.max_rows + j;
    proposals.push_back(Row::proposal(places[i]));
  }
  return places;
}

int64_t cache_bytes(const Step& step, int64_t element) {
  int64_t values = 0;
  for (const auto* caches : {&step.shape().full, &step.shape().sliding}) {
    for (const CacheShape& cache : *caches) {
      values += step.entries(cache.window) * cache.kv_heads * cache.head_dim * 2;
    }
  }
  return values * element;
}

Error out_of_cache_memory(const Step& step, int64_t element) {
  return {ErrorCode::kResourceExhausted,
          fmt::format("out of memory for {} MiB of keys and values; use fewer sequences or a "
                      "shorter context",
                      cache_bytes(step, element) >> 20)};
}

}  // namespace lagoon::kernels
