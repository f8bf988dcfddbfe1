// What draft_context() has put off until the draft's next step: many rows at a time are cheaper
// than one at a time, and a draft that is not asked for proposals needs none of them. The taps are
// copied. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace lagoon::kernels::cpu {

// Taps of some rows: tap t of row r at first + t * tap_stride + r * hidden.
struct Taps {
  const float* first = nullptr;
  int64_t tap_stride = 0;
  int64_t hidden = 0;
  int count = 0;

  const float* at(int64_t tap, int64_t row) const {
    return first + tap * tap_stride + row * hidden;
  }
};

class PendingContext {
 public:
  // Most memory of the copies, for layers whose widest window is `window`.
  static int64_t bytes(int window, int sequences, int taps, int64_t hidden);

  // Of the context of `layers`, for `sequences` sequences and rows with `taps`. Takes address space
  // for copies; memory as they are used, 64 MiB at most but for very many sequences.
  PendingContext(const DraftContext& context, std::span<const AttentionLayer> layers, int sequences,
                 const Taps& taps);

  const DraftContext& context() const { return *context_; }
  std::span<const AttentionLayer> layers() const { return layers_; }

  // Puts a row off; false where what is there must be computed first: there is no room, or the row
  // does not go on where its sequence ended, whose entries of the caches it may take. A row that no
  // layer's window reaches any more makes room without having been computed.
  bool add(const Taps& taps, const ContextRow& row);
  bool has_room_for(size_t rows) const { return rows <= static_cast<size_t>(capacity_); }

  // All that is put off, by sequence and position, with `row` counting rows of copies().
  std::vector<ContextRow> rows() const;
  const Taps& copies() const { return copies_; }
  void clear();

 private:
  // Positions of a sequence that are put off; position p is row p % capacity_ of its copies.
  struct Positions {
    int32_t begin = 0;
    int32_t end = 0;
  };

  const DraftContext* context_;
  std::span<const AttentionLayer> layers_;
  int64_t capacity_;  // rows of a sequence
  bool drops_;        // they are all that a window reaches
  std::vector<Positions> positions_;
  std::unique_ptr<float[]> memory_;  // [taps, sequences, capacity_, hidden]
  Taps copies_;
};

}  // namespace lagoon::kernels::cpu
