// Sections of a step as CUDA graphs: many launches that are one call of the driver. A section is
// what is put on the stream between open() and close(); its key says everything that its launches
// depend on but what they read from device memory. It is launched the first time, captured the
// second, and replayed from then on.
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

// The graphs of one state. At most one section of a device is open at a time.
class Graphs {
 public:
  explicit Graphs(Device& device) : device_(device) {}
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  void open(uint64_t key);
  // Whether an operation, of which `identity` is known, has to be put on the stream. It does not
  // where the section is a graph already, which must have been made of the same operations.
  bool wants(const void* identity);
  // The section is over: runs it unless it was launched.
  void close();

  template <typename Work>
  void run(uint64_t key, const Work& work) {
    open(key);
    if (wants(nullptr)) work();
    close();
  }

 private:
  enum class Mode { kClosed, kLaunch, kCapture, kReplay };
  struct Graph {
    CUgraphExec_st* steps = nullptr;
    uint64_t operations = 0;  // what it was made of
  };
  void capture_ended(Graph& graph);
  void clear();

  Device& device_;
  std::unordered_map<uint64_t, Graph> graphs_;
  uint64_t key_ = 0;
  uint64_t operations_ = 0;
  Mode mode_ = Mode::kClosed;
};

}  // namespace lagoon::kernels::cuda
