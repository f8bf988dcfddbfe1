// Sections of a step as CUDA graphs: many launches that are one call of the driver. The key of a
// section says everything that its launches depend on but what they read from device memory: of a
// step's layers the number of its rows, and of positions rounded up, not whose rows they are. It is
// launched the first time, captured the second, and replayed from then on; model/warm_up.h does the
// first two before there is a request.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "kernels/cuda/device.h"

struct CUgraphExec_st;

namespace lagoon::kernels::cuda {

// Steps of more rows are launched: their shapes seldom come again, and their kernels are long.
inline constexpr int64_t kMostGraphRows = 64;

// A key from numbers and addresses.
inline uint64_t mix(uint64_t key, uint64_t value) {
  // splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014)
  uint64_t z = key + 0x9e3779b97f4a7c15u + value;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
inline uint64_t mix(uint64_t key, const void* address) {
  return mix(key, static_cast<uint64_t>(reinterpret_cast<uintptr_t>(address)));
}

// The graphs of one state.
class Graphs {
 public:
  explicit Graphs(Device& device) : device_(device) {}
  ~Graphs() { clear(); }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // `work` puts the section on the stream. It takes no memory and waits for nothing, except where
  // it does so the first time alone.
  template <typename Work>
  void run(uint64_t key, const Work& work) {
    const Next next = next_of(key);
    if (next != Next::kReplay) work();
    if (next == Next::kCapture) end_capture();
    if (next != Next::kLaunch) replay();
  }

 private:
  enum class Next { kLaunch, kCapture, kReplay };
  Next next_of(uint64_t key);
  void end_capture();
  void replay();
  void clear();

  Device& device_;
  std::unordered_map<uint64_t, CUgraphExec_st*> graphs_;  // null: it was launched once
  uint64_t key_ = 0;                                      // of the section that runs
};

}  // namespace lagoon::kernels::cuda
