#include "kernels/cpu/pending_context.h"

#include <algorithm>

#include "base/check.h"

namespace lagoon::kernels::cpu {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr int64_t kMostSequenceBytes = int64_t{4} << 20;
constexpr int64_t kFewestRows = 4;

// Positions that a row of some layer sees besides its own.
int64_t reach(std::span<const AttentionLayer> layers) {
  int64_t most = 1;
  for (const AttentionLayer& layer : layers) {
    most = std::max(most, int64_t{layer.window} - 1);
  }
  return most;
}

int64_t capacity(int64_t reach, int sequences, const Taps& taps) {
  const int64_t row_bytes = taps.count * taps.hidden * static_cast<int64_t>(sizeof(float));
  const int64_t rows = std::min(kMostSequenceBytes, kMostBytes / sequences) / row_bytes;
  return std::min(std::max(rows, kFewestRows), reach);
}

}  // namespace

PendingContext::PendingContext(const DraftContext& context, std::span<const AttentionLayer> layers,
                               int sequences, const Taps& taps)
    : context_(&context),
      layers_(layers),
      capacity_(capacity(reach(layers), sequences, taps)),
      drops_(capacity_ == reach(layers)),
      positions_(static_cast<size_t>(sequences)) {
  const int64_t tap_stride = sequences * capacity_ * taps.hidden;
  memory_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(taps.count * tap_stride));
  copies_ = {memory_.get(), tap_stride, taps.hidden, taps.count};
}

bool PendingContext::add(const Taps& taps, const ContextRow& row) {
  CHECK(taps.count == copies_.count && taps.hidden == copies_.hidden);
  Positions& of = positions_[static_cast<size_t>(row.sequence)];
  if (of.begin == of.end) of = {row.position, row.position};
  if (of.end != row.position) return false;
  if (of.end - of.begin == capacity_) {
    if (!drops_) return false;
    ++of.begin;
  }
  ++of.end;
  const int64_t at = row.sequence * capacity_ + row.position % capacity_;
  for (int tap = 0; tap < taps.count; ++tap) {
    std::copy_n(taps.at(tap, row.row), taps.hidden,
                memory_.get() + tap * copies_.tap_stride + at * taps.hidden);
  }
  return true;
}

std::vector<ContextRow> PendingContext::rows() const {
  std::vector<ContextRow> rows;
  for (size_t sequence = 0; sequence < positions_.size(); ++sequence) {
    const auto [begin, end] = positions_[sequence];
    for (int32_t position = begin; position < end; ++position) {
      const int64_t at = static_cast<int64_t>(sequence) * capacity_ + position % capacity_;
      rows.push_back({.row = static_cast<int32_t>(at),
                      .position = position,
                      .sequence = static_cast<int32_t>(sequence)});
    }
  }
  return rows;
}

void PendingContext::clear() {
  std::ranges::fill(positions_, Positions{});
}

}  // namespace lagoon::kernels::cpu
