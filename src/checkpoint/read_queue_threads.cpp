#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"
#include "checkpoint/read_queue.h"

namespace lagoon::checkpoint {
namespace {

constexpr unsigned kMaxThreads = 16;  // they wait for the disk, most of the time

class ThreadQueue : public ReadQueue {
 public:
  explicit ThreadQueue(unsigned depth) {
    for (unsigned i = 0; i < std::min(depth, kMaxThreads); ++i)
      threads_.emplace_back([this] { work(); });
  }
  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    asked_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string_view name() const override { return "pread"; }

  void submit(const ReadRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    ++in_flight_;
    asked_.notify_one();
  }

  ReadDone wait() override {
    CHECK(in_flight_ > 0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return !results_.empty(); });
    const ReadDone result = results_.front();
    results_.pop_front();
    --in_flight_;
    return result;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      asked_.wait(lock, [this] { return stopping_ || !requests_.empty(); });
      if (requests_.empty()) return;
      const ReadRequest request = requests_.front();
      requests_.pop_front();
      lock.unlock();
      const ssize_t bytes = ::pread(request.descriptor, request.into, request.bytes,
                                    static_cast<off_t>(request.offset));
      const int64_t result = bytes >= 0 ? bytes : -int64_t{errno};
      lock.lock();
      results_.push_back({request.tag, result});
      done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable asked_;
  std::condition_variable done_;
  std::deque<ReadRequest> requests_;  // guarded by mutex_, as the next two
  std::deque<ReadDone> results_;
  bool stopping_ = false;
  unsigned in_flight_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<ReadQueue> make_thread_queue(unsigned depth) {
  return std::make_unique<ThreadQueue>(depth);
}

}  // namespace lagoon::checkpoint
