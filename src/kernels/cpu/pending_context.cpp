#include "kernels/cpu/pending_context.h"

#include <algorithm>

#include "base/check.h"

namespace lagoon::kernels::cpu {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr int64_t kMostSequenceBytes = int64_t{4} << 20;
constexpr int64_t kFewestRows = 4;

// Positions that a row sees besides its own.
int64_t reach_of(int window) {
  return std::max(1, window - 1);
}

int widest(std::span<const AttentionLayer> layers) {
  int window = 0;
  for (const AttentionLayer& layer : layers) window = std::max(window, layer.window);
  return window;
}

int64_t row_bytes(int taps, int64_t hidden) {
  return taps * hidden * static_cast<int64_t>(sizeof(float));
}

int64_t capacity_of(int window, int sequences, int taps, int64_t hidden) {
  const int64_t rows =
      std::min(kMostSequenceBytes, kMostBytes / sequences) / row_bytes(taps, hidden);
  return std::min(std::max(rows, kFewestRows), reach_of(window));
}

}  // namespace

int64_t PendingContext::bytes(int window, int sequences, int taps, int64_t hidden) {
  return sequences * capacity_of(window, sequences, taps, hidden) * row_bytes(taps, hidden);
}

PendingContext::PendingContext(const DraftContext& context, std::span<const AttentionLayer> layers,
                               int sequences, const Taps& taps)
    : context_(&context),
      layers_(layers),
      capacity_(capacity_of(widest(layers), sequences, taps.count, taps.hidden)),
      drops_(capacity_ == reach_of(widest(layers))),
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
