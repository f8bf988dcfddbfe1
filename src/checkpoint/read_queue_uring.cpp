// io_uring by its three system calls (man 7 io_uring): one ring takes requests, the other gives
// results; both are memory shared with the kernel. Nothing here needs more than Linux 5.6.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/check.h"
#include "checkpoint/read_queue.h"

namespace lagoon::checkpoint {
namespace {

int setup(unsigned entries, io_uring_params& params) {
  return static_cast<int>(::syscall(__NR_io_uring_setup, entries, &params));
}

int enter(int ring, unsigned to_submit, unsigned to_wait) {
  const unsigned flags = to_wait > 0 ? IORING_ENTER_GETEVENTS : 0;
  return static_cast<int>(
      ::syscall(__NR_io_uring_enter, ring, to_submit, to_wait, flags, nullptr, 0));
}

// A mapping of the ring's memory.
class Region {
 public:
  Region() = default;
  Region(int ring, size_t bytes, off_t offset) : bytes_(bytes) {
    void* at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, offset);
    if (at != MAP_FAILED) at_ = static_cast<std::byte*>(at);
  }
  ~Region() {
    if (at_ != nullptr) ::munmap(at_, bytes_);
  }
  Region(const Region&) = delete;
  Region& operator=(Region&& other) noexcept {
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  bool there() const { return at_ != nullptr; }
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(at_ + offset);
  }

 private:
  std::byte* at_ = nullptr;
  size_t bytes_ = 0;
};

class UringQueue : public ReadQueue {
 public:
  ~UringQueue() override {
    while (in_flight_ > 0) (void)wait();
    if (ring_ >= 0) ::close(ring_);
  }

  // False where the system refuses.
  bool open(unsigned depth) {
    io_uring_params params = {};
    ring_ = setup(depth, params);
    // The read without a vector of buffers came together with this feature.
    if (ring_ < 0 || (params.features & IORING_FEAT_RW_CUR_POS) == 0) return false;
    requests_ = Region(ring_, params.sq_off.array + params.sq_entries * sizeof(unsigned),
                       IORING_OFF_SQ_RING);
    results_ = Region(ring_, params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe),
                      IORING_OFF_CQ_RING);
    entries_ = Region(ring_, params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
    if (!requests_.there() || !results_.there() || !entries_.there()) return false;
    submission_ = params.sq_off;
    completion_ = params.cq_off;
    return probe();
  }

  std::string_view name() const override { return "io_uring"; }

  void submit(const ReadRequest& request) override {
    io_uring_sqe entry = {};
    entry.opcode = IORING_OP_READ;
    entry.fd = request.descriptor;
    entry.off = request.offset;
    entry.addr = reinterpret_cast<uintptr_t>(request.into);
    entry.len = static_cast<unsigned>(request.bytes);
    entry.user_data = request.tag;
    CHECK(push(entry) == 0);
  }

  ReadDone wait() override {
    CHECK(in_flight_ > 0);
    while (true) {
      unsigned* const head = results_.at<unsigned>(completion_.head);
      const unsigned at = *head;  // only this side writes it
      if (at != load(results_.at<unsigned>(completion_.tail))) {
        const unsigned mask = *results_.at<unsigned>(completion_.ring_mask);
        const io_uring_cqe result = results_.at<io_uring_cqe>(completion_.cqes)[at & mask];
        store(head, at + 1);
        --in_flight_;
        return {result.user_data, result.res};
      }
      CHECK(enter(ring_, 0, 1) >= 0 || errno == EINTR || errno == EAGAIN || errno == EBUSY);
    }
  }

 private:
  static unsigned load(unsigned* from) {
    return std::atomic_ref<unsigned>(*from).load(std::memory_order_acquire);
  }
  static void store(unsigned* to, unsigned value) {
    std::atomic_ref<unsigned>(*to).store(value, std::memory_order_release);
  }

  // 0 or the error of handing it to the kernel.
  int push(const io_uring_sqe& entry) {
    unsigned* const tail = requests_.at<unsigned>(submission_.tail);
    const unsigned at = *tail;  // only this side writes it
    const unsigned slot = at & *requests_.at<unsigned>(submission_.ring_mask);
    entries_.at<io_uring_sqe>(0)[slot] = entry;
    requests_.at<unsigned>(submission_.array)[slot] = slot;
    store(tail, at + 1);
    while (enter(ring_, 1, 0) != 1) {
      if (errno != EINTR && errno != EAGAIN && errno != EBUSY) return errno;
      std::this_thread::yield();  // the kernel is short of memory for a moment
    }
    ++in_flight_;
    return 0;
  }

  // Some filters let a ring be made and refuse to use it.
  bool probe() {
    io_uring_sqe nothing = {};
    nothing.opcode = IORING_OP_NOP;
    return push(nothing) == 0 && wait().result == 0;
  }

  int ring_ = -1;
  unsigned in_flight_ = 0;
  Region requests_;
  Region results_;
  Region entries_;
  io_sqring_offsets submission_ = {};
  io_cqring_offsets completion_ = {};
};

}  // namespace

std::unique_ptr<ReadQueue> make_uring_queue(unsigned depth) {
  auto queue = std::make_unique<UringQueue>();
  if (!queue->open(depth)) return nullptr;
  return queue;
}

}  // namespace lagoon::checkpoint
