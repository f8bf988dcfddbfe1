#include "checkpoint/weight_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include "checkpoint/file.h"
#include "checkpoint/page_cache.h"
#include "checkpoint/read_queue.h"
#include "checkpoint/small_pieces.h"
#include "checkpoint/staging.h"

namespace lagoon::checkpoint {
namespace {

constexpr uint64_t kChunkBytes = 1 << 20;  // of one read
constexpr unsigned kDepth = 64;            // reads in flight

// A file open twice: for reads past the page cache, where that is allowed, and through it.
class Source {
 public:
  static Result<Source> open(const SafetensorsFile& file, bool direct) {
    LAGOON_ASSIGN(InputFile buffered, InputFile::open(file.path()));
    if (buffered.size() != file.mapping().size())
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} was changed while it was being loaded", file.path())};
    Source source(file, std::move(buffered));
    if (direct) source.direct_ = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    // Reading ahead would fill the cache with what is not asked for.
    (void)::posix_fadvise(source.buffered_.descriptor(), 0, 0, POSIX_FADV_RANDOM);
    source.look_at_cache();
    return source;
  }
  ~Source() {
    if (direct_ >= 0) ::close(direct_);
  }
  Source(Source&& other) noexcept
      : file_(other.file_),
        buffered_(std::move(other.buffered_)),
        direct_(std::exchange(other.direct_, -1)),
        refused_(other.refused_),
        resident_(std::move(other.resident_)) {}
  Source& operator=(Source&&) = delete;

  const std::string& path() const { return file_->path(); }
  uint64_t size() const { return buffered_.size(); }
  int buffered() const { return buffered_.descriptor(); }
  int direct() const { return refused_ ? -1 : direct_; }  // -1: not allowed
  // The descriptor stays, for reads that are still in a queue.
  void refuse_direct() { refused_ = true; }
  // Pages of [offset, offset + bytes) that were in the page cache before the first read. (Asked
  // for later, a page that two reads share would seem to have been there.)
  std::vector<uint8_t> resident(uint64_t offset, uint64_t bytes) const {
    const auto first = resident_.begin() + static_cast<std::ptrdiff_t>(offset / kPageBytes);
    return {first, first + static_cast<std::ptrdiff_t>(page_ceil(bytes) / kPageBytes)};
  }

 private:
  Source(const SafetensorsFile& file, InputFile buffered)
      : file_(&file), buffered_(std::move(buffered)) {}

  void look_at_cache() {
    resident_.assign(page_ceil(size()) / kPageBytes, false);
    if (!may_ask_for_pages(buffered_.descriptor())) return;
    constexpr uint64_t kStep = 64 << 20;
    for (uint64_t offset = 0; offset < size(); offset += kStep) {
      const auto pages = resident_pages(file_->mapping(), offset, std::min(kStep, size() - offset));
      std::copy(pages.begin(), pages.end(),
                resident_.begin() + static_cast<std::ptrdiff_t>(offset / kPageBytes));
    }
  }

  const SafetensorsFile* file_;
  InputFile buffered_;
  int direct_ = -1;
  bool refused_ = false;
  std::vector<bool> resident_;
};

// A piece on its way to memory, with the pages around it.
struct Extent {
  Piece piece;
  Source* source = nullptr;
  std::byte* memory = nullptr;  // of the page in which the piece begins

  uint64_t begin() const { return page_floor(piece.offset); }
  uint64_t end() const { return page_ceil(piece.offset + piece.bytes); }
  std::span<const std::byte> bytes() const {
    return {memory + (piece.offset - begin()), piece.bytes};
  }
};

// Extents that are read into one span of memory.
struct Group {
  std::vector<Extent> extents;
  Pages own;                     // where the ring is too small
  std::byte* in_ring = nullptr;  // else
  uint64_t bytes = 0;
  LoadProgress* progress = nullptr;
  size_t extent = 0;    // the next read: its extent,
  uint64_t offset = 0;  // and from where in the file, if it has begun
  unsigned in_flight = 0;

  bool all_asked_for() const { return extent == extents.size(); }
  bool complete() const { return all_asked_for() && in_flight == 0; }
  void place(std::byte* memory) {
    for (Extent& part : extents) {
      part.memory = memory;
      memory += part.end() - part.begin();
    }
  }
};

// One read in flight.
struct Chunk {
  Group* group = nullptr;
  Extent* extent = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t done = 0;  // of them, by reads that were cut short
  bool direct = false;
  std::vector<uint8_t> resident;  // pages, before the read

  std::byte* memory() const { return extent->memory + (offset - extent->begin()); }
};

class Reader : public WeightReader {
 public:
  Reader(std::vector<Pieces> order, const ReadOptions& options, Pages ring,
         std::unique_ptr<ReadQueue> queue)
      : order_(std::move(order)),
        options_(options),
        ring_(std::move(ring)),
        chunks_(kDepth),
        queue_(std::move(queue)) {
    for (unsigned i = 0; i < kDepth; ++i) free_.push_back(i);
  }

  Result<void> open() {
    std::vector<Piece> all;
    for (const Pieces& pieces : order_) all.insert(all.end(), pieces.begin(), pieces.end());
    for (const Piece& piece : all) {
      if (sources_.contains(piece.file)) continue;
      LAGOON_ASSIGN(Source source, Source::open(*piece.file, options_.direct));
      sources_.emplace(piece.file, std::move(source));
    }
    small_limit_ = small_limit(all);
    return read_small(small_stretches(all, small_limit_));
  }

  Result<std::vector<std::span<const std::byte>>> take(const Pieces& pieces) override {
    if (std::exchange(taken_one_, true)) give_back();
    CHECK(next_ < order_.size() && order_[next_] == pieces);
    ++next_;
    fill();
    while (!error_ && !(window_.front()->complete())) {
      reap();
      fill();
    }
    if (error_) return *error_;
    std::vector<std::span<const std::byte>> spans;
    auto extent = window_.front()->extents.begin();
    for (const Piece& piece : pieces) {
      const auto kept = small(piece);
      spans.push_back(kept ? *kept : (extent++)->bytes());
      if (kept && options_.progress != nullptr) options_.progress->add_bytes(piece.bytes);
    }
    return spans;
  }

  std::optional<std::span<const std::byte>> small(const Piece& piece) const override {
    if (piece.bytes > small_limit_) return std::nullopt;
    if (piece.bytes == 0) return std::span<const std::byte>();
    const auto after = std::upper_bound(
        small_.extents.begin(), small_.extents.end(), piece, [](const Piece& a, const Extent& b) {
          return a.file != b.piece.file ? std::less<>()(a.file, b.piece.file)
                                        : a.offset < b.piece.offset;
        });
    CHECK(after != small_.extents.begin());
    const Extent& extent = *(after - 1);
    CHECK(extent.piece.file == piece.file && piece.offset >= extent.piece.offset &&
          piece.offset + piece.bytes <= extent.piece.offset + extent.piece.bytes);
    return extent.bytes().subspan(piece.offset - extent.piece.offset, piece.bytes);
  }

  std::string method() const override {
    const bool direct = direct_bytes_ > buffered_bytes_ && direct_bytes_ > cached_bytes_;
    const bool cached = cached_bytes_ > buffered_bytes_;
    return fmt::format("{}, {}",
                       direct   ? "direct I/O"
                       : cached ? "from the page cache"
                                : "through the page cache",
                       queue_->name());
  }

 private:
  Group group_of(const Pieces& pieces, LoadProgress* progress) {
    Group group;
    group.progress = progress;
    for (const Piece& piece : pieces) {
      group.extents.push_back({piece, &sources_.at(piece.file), nullptr});
      group.bytes += group.extents.back().end() - group.extents.back().begin();
    }
    return group;
  }

  Result<void> read_small(const std::vector<Piece>& stretches) {
    small_ = group_of(stretches, nullptr);
    LAGOON_ASSIGN(small_.own, Pages::make(small_.bytes));
    small_.place(small_.own.data());
    while (!small_.complete() && !error_) {
      while (!small_.all_asked_for() && !free_.empty()) ask(small_);
      reap();
    }
    if (error_) return *error_;
    return {};
  }

  // Gives the oldest group's memory back.
  void give_back() {
    const Group& group = *window_.front();
    if (group.in_ring != nullptr) ring_.give_back(group.in_ring, group.bytes);
    if (group.own.size() > 0) large_ = false;
    window_.pop_front();
  }

  // Starts as many reads as there is room for.
  void fill() {
    while (!error_ && !free_.empty()) {
      if (window_.empty() || window_.back()->all_asked_for()) {
        if (started_ == order_.size() || !start_group()) return;
        continue;
      }
      ask(*window_.back());
    }
  }

  // False where there is no room for the next group yet.
  bool start_group() {
    Pieces pieces;
    for (const Piece& piece : order_[started_])
      if (piece.bytes > small_limit_) pieces.push_back(piece);
    auto group = std::make_unique<Group>(group_of(pieces, options_.progress));
    if (group->bytes > ring_.size()) {
      if (large_) return false;
      auto own = Pages::make(group->bytes);
      if (!own.ok()) {
        error_ = own.error();
        return false;
      }
      group->own = std::move(own).value();
      group->place(group->own.data());
      large_ = true;
    } else if (group->bytes > 0) {
      group->in_ring = ring_.take(group->bytes);
      if (group->in_ring == nullptr) return false;
      group->place(group->in_ring);
    }
    window_.push_back(std::move(group));
    ++started_;
    return true;
  }

  // The next read of a group.
  void ask(Group& group) {
    const unsigned slot = free_.back();
    free_.pop_back();
    Extent& extent = group.extents[group.extent];
    Chunk& chunk = chunks_[slot];
    chunk.group = &group;
    chunk.extent = &extent;
    chunk.offset = std::max(group.offset, extent.begin());
    chunk.bytes = std::min(kChunkBytes, extent.end() - chunk.offset);
    chunk.done = 0;
    chunk.resident = extent.source->resident(chunk.offset, chunk.bytes);
    group.offset = chunk.offset + chunk.bytes;
    if (group.offset == extent.end()) {
      ++group.extent;
      group.offset = 0;
    }
    ++group.in_flight;
    ++in_flight_;
    send(slot);
  }

  void send(unsigned slot) {
    Chunk& chunk = chunks_[slot];
    const Source& source = *chunk.extent->source;
    const bool cached =
        std::find(chunk.resident.begin(), chunk.resident.end(), 0) == chunk.resident.end();
    chunk.direct = source.direct() >= 0 && !cached;
    queue_->submit({chunk.direct ? source.direct() : source.buffered(), chunk.offset + chunk.done,
                    chunk.memory() + chunk.done, chunk.bytes - chunk.done, slot});
  }

  // Waits for a read and sees what became of it.
  void reap() {
    CHECK(in_flight_ > 0);
    const ReadDone done = queue_->wait();
    const auto slot = static_cast<unsigned>(done.tag);
    Chunk& chunk = chunks_[slot];
    Source& source = *chunk.extent->source;
    if (done.result == -EAGAIN || done.result == -EINTR) return send(slot);
    if (chunk.direct && (done.result == -EINVAL || done.result == -EOPNOTSUPP)) {
      // Opened, and refused all the same: some file systems, some alignments.
      source.refuse_direct();
      return send(slot);
    }
    if (done.result < 0) {
      fail({ErrorCode::kInternal,
            fmt::format("{} cannot be read at byte {}: {}", source.path(), chunk.offset,
                        std::generic_category().message(static_cast<int>(-done.result)))});
      return finish(slot);
    }
    const uint64_t end = std::min(chunk.offset + chunk.bytes, source.size());
    const uint64_t reached = chunk.offset + chunk.done + static_cast<uint64_t>(done.result);
    if (reached < end) {
      // A direct read goes on at the beginning of a page.
      const uint64_t kept = (chunk.direct ? page_floor(reached) : reached) - chunk.offset;
      if (kept > chunk.done) {
        chunk.done = kept;
        return send(slot);
      }
      if (chunk.direct && done.result > 0) {  // less than a page: by direct reads it cannot go on
        source.refuse_direct();
        return send(slot);
      }
      fail({ErrorCode::kInvalidArgument,
            fmt::format("{} ends at byte {}: it became shorter while it was read", source.path(),
                        reached)});
    } else {
      count(chunk);
    }
    finish(slot);
  }

  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }

  void count(const Chunk& chunk) {
    const bool cached = !chunk.direct && std::find(chunk.resident.begin(), chunk.resident.end(),
                                                   0) == chunk.resident.end();
    (chunk.direct ? direct_bytes_ : cached ? cached_bytes_ : buffered_bytes_) += chunk.bytes;
    if (chunk.group->progress == nullptr) return;
    const Piece& piece = chunk.extent->piece;
    const uint64_t begin = std::max(chunk.offset, piece.offset);
    const uint64_t end = std::min(chunk.offset + chunk.bytes, piece.offset + piece.bytes);
    chunk.group->progress->add_bytes(end - begin);
  }

  void finish(unsigned slot) {
    const Chunk& chunk = chunks_[slot];
    if (!chunk.direct) drop_pages(chunk.extent->source->buffered(), chunk.offset, chunk.resident);
    --chunk.group->in_flight;
    --in_flight_;
    free_.push_back(slot);
  }

  const std::vector<Pieces> order_;
  const ReadOptions options_;
  std::map<const SafetensorsFile*, Source, std::less<>> sources_;
  uint64_t small_limit_ = 0;
  Group small_;
  Ring ring_;
  bool large_ = false;                         // a group of the window has memory of its own
  size_t started_ = 0;                         // groups of the order, from the first
  size_t next_ = 0;                            // to be taken
  bool taken_one_ = false;                     // the front of the window is the caller's
  std::deque<std::unique_ptr<Group>> window_;  // started and not given back
  std::vector<Chunk> chunks_;
  std::vector<unsigned> free_;  // of chunks_
  unsigned in_flight_ = 0;
  std::optional<Error> error_;
  uint64_t direct_bytes_ = 0;
  uint64_t buffered_bytes_ = 0;
  uint64_t cached_bytes_ = 0;
  std::unique_ptr<ReadQueue> queue_;  // the last: it ends its reads before their memory goes
};

}  // namespace

Result<std::unique_ptr<WeightReader>> WeightReader::start(std::vector<Pieces> order,
                                                          const ReadOptions& options) {
  std::unique_ptr<ReadQueue> queue = options.uring ? make_uring_queue(kDepth) : nullptr;
  if (queue == nullptr) queue = make_thread_queue(kDepth);
  LAGOON_ASSIGN(Pages ring, Pages::make(page_ceil(std::max(options.staging_bytes, kPageBytes))));
  auto reader =
      std::make_unique<Reader>(std::move(order), options, std::move(ring), std::move(queue));
  LAGOON_RETURN_IF_ERROR(reader->open());
  return std::unique_ptr<WeightReader>(std::move(reader));
}

uint64_t staging_bound(const ModelDir& directory, const ReadOptions& options) {
  std::vector<Piece> all;
  uint64_t largest = 0;
  for (const Tensor& tensor : directory.tensors()) {
    all.push_back({tensor.file, tensor.info->offset, tensor.info->bytes});
    largest = std::max(largest, tensor.info->bytes);
  }
  uint64_t bound = options.staging_bytes;
  if (largest > options.staging_bytes) bound += page_ceil(largest) + kPageBytes;
  for (const Piece& stretch : small_stretches(all, small_limit(all))) bound += stretch.bytes;
  return bound;
}

}  // namespace lagoon::checkpoint
