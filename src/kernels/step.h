// The rows of a step and where their keys and values lie: what every backend on the host does
// alike.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace lagoon::kernels {

// The lowest position that a row at `position` sees; `window` as in AttentionLayer.
int64_t lowest_seen(int window, int64_t position);

// Rows of a step at consecutive positions of one sequence.
struct RowGroup {
  int64_t first_row = 0;
  int64_t rows = 0;
  int32_t sequence = 0;
  int32_t first_position = 0;
};

// Cuts the rows of a step into groups of at most `most` rows.
std::vector<RowGroup> group_rows(std::span<const Row> rows, int64_t most);

// What does not keep to ops.h is a bug (CHECK).
class Step {
 public:
  // Rings hold window + rows_at_once() + block_rows positions, rounded up to a multiple of
  // `ring_multiple`. Rows at once: max_rows, but at most `most_at_once`.
  explicit Step(const StateShape& shape, int ring_multiple = 1,
                int most_at_once = std::numeric_limits<int>::max());

  const StateShape& shape() const { return shape_; }

  // Takes over the rows and page tables of a step. `draft` is that of the state which
  // batch.proposals names, null if it names none.
  void begin(const Batch& batch, const Step* draft);
  // The rows of the step, proposals resolved, or named by place (keep_places()).
  std::span<const Row> rows() const { return rows_; }

  // Rows whose keys may be written to a ring before the first of them attends: more of a sequence
  // would write over what it sees.
  int rows_at_once() const { return rows_at_once_; }

  // Positions that the ring of a sliding layer holds for each sequence.
  int64_t ring_positions(int window) const;
  // Positions that a cache holds, all sequences together.
  int64_t entries(int window) const;
  // Where a position lies among them: full layers (window 0), page_table[position / page_tokens] *
  // page_tokens + position % page_tokens; sliding layers, a ring by sequence.
  int64_t entry(int window, int32_t sequence, int64_t position) const;

  // The tokens become the proposals of the sequences among `asked` (rows of this step), in order of
  // row.
  void keep_proposals(std::span<const SampleRow> asked, std::span<const int32_t> tokens);

  // The same where only a device knows the tokens: proposal j of sequence s stays there at place
  // s * max_rows + j, and stands in rows() as Row::proposal(place). Returns the place of each
  // asked row.
  std::vector<int32_t> keep_places(std::span<const SampleRow> asked);

  // Counts a sparse layer of the step and the experts that any of its rows chose.
  void count_experts(int64_t distinct) {
    ++expert_use_.layers;
    expert_use_.distinct += distinct;
  }
  ExpertUse expert_use() const { return expert_use_; }

 private:
  void check_rows() const;

  StateShape shape_;
  int ring_multiple_;
  int rows_at_once_;
  std::vector<std::vector<int32_t>> page_tables_;  // by slot
  std::vector<std::vector<int32_t>> proposals_;    // by slot: tokens, or Row::proposal(place)
  std::vector<Row> rows_;
  ExpertUse expert_use_;
};

// Bytes of all keys and values of a state, if an element takes `element` bytes.
int64_t cache_bytes(const Step& step, int64_t element);
// That they did not fit into memory.
Error out_of_cache_memory(const Step& step, int64_t element);

}  // namespace lagoon::kernels
