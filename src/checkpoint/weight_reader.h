// Reads the payload of safetensors files in the order in which a model takes it, ahead of being
// asked, into little memory of its own: past the page cache where the file system allows it, else
// through it, and then what was not in the cache before is dropped from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/load_progress.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/safetensors.h"

namespace lagoon::checkpoint {

// A part of a tensor, or all of it.
struct Piece {
  const SafetensorsFile* file = nullptr;
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;

  friend bool operator==(const Piece&, const Piece&) = default;
};

// What is taken at once: the parts of one matrix.
using Pieces = std::vector<Piece>;

struct ReadOptions {
  LoadProgress* progress = nullptr;
  uint64_t staging_bytes = uint64_t{128} << 20;
  // For tests: as if direct I/O or io_uring were refused.
  bool direct = true;
  bool uring = true;
};

// Small pieces are read before all others, together with their neighbours, and kept: checkpoints
// have tens of thousands of single numbers. Small is what has at most 64 KiB, or less where there
// would be more than 64 MiB of it, but always what fits a page.

// One thread uses a reader. The files outlive it.
class WeightReader {
 public:
  // `order` is what take() will be asked for. Reads the small pieces before it returns. Errors name
  // the file: it cannot be opened any more, cannot be read, became shorter.
  static Result<std::unique_ptr<WeightReader>> start(std::vector<Pieces> order,
                                                     const ReadOptions& options);
  virtual ~WeightReader() = default;
  WeightReader(const WeightReader&) = delete;
  WeightReader& operator=(const WeightReader&) = delete;

  // The bytes of the next pieces of the order (a CHECK that they are), at any alignment; valid
  // until the next call.
  virtual Result<std::vector<std::span<const std::byte>>> take(const Pieces& pieces) = 0;
  // A piece of the order, if it is small, at any time; valid while the reader lives.
  virtual std::optional<std::span<const std::byte>> small(const Piece& piece) const = 0;
  // "direct I/O, io_uring": as most of what was read so far was.
  virtual std::string method() const = 0;

 protected:
  WeightReader() = default;
};

// About how much memory reading a directory's weights takes at most, beside what they become: the
// ring, one tensor that is larger than it, and the small tensors. Looks at headers only.
uint64_t staging_bound(const ModelDir& directory, const ReadOptions& options = {});

}  // namespace lagoon::checkpoint
