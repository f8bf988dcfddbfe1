#include "net/exchange.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lagoon::net {
namespace {

class ExchangeResponder : public Responder {
 public:
  explicit ExchangeResponder(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~ExchangeResponder() override { exchange_->abandon(); }

  void respond(int status, std::string_view content_type, std::string body,
               Headers headers) override {
    exchange_->respond(status, content_type, std::move(body), headers);
  }
  void start_stream(int status, std::string_view content_type, Headers headers) override {
    exchange_->start_stream(status, content_type, headers);
  }
  bool write(std::string data) override { return exchange_->write(std::move(data)); }
  void finish() override { exchange_->finish(); }
  void on_gone(std::function<void()> callback) override { exchange_->on_gone(std::move(callback)); }

 private:
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace

Exchange::Exchange(const Settings& settings, std::function<void()> wake)
    : settings_(settings), wake_(std::move(wake)), keep_alive_(settings.keep_alive) {}

void Exchange::push(std::string data) {
  if (data.empty()) return;
  unread_.fetch_add(data.size(), std::memory_order_relaxed);
  queue_.push_back(std::move(data));
}

// One wake-up is enough until the connection has taken what there is.
void Exchange::wake_once(std::unique_lock<std::mutex> lock) {
  const bool first = !std::exchange(woken_, true);
  lock.unlock();
  if (first) wake_();
}

void Exchange::respond(int status, std::string_view content_type, std::string body,
                       const Headers& headers) {
  std::unique_lock lock(mutex_);
  CHECK(stage_ == Stage::kOpen);
  stage_ = Stage::kComplete;
  push(format_head({.status = status,
                    .content_type = content_type,
                    .length = body.size(),
                    .keep_alive = keep_alive_,
                    .version = settings_.version,
                    .more = &headers}));
  if (!settings_.head_only) push(std::move(body));
  callback_ = nullptr;
  wake_once(std::move(lock));
}

void Exchange::start_stream(int status, std::string_view content_type, const Headers& headers) {
  std::unique_lock lock(mutex_);
  CHECK(stage_ == Stage::kOpen);
  stage_ = Stage::kStreaming;
  chunked_ = settings_.version >= 11;
  if (!chunked_) keep_alive_ = false;
  push(format_head({.status = status,
                    .content_type = content_type,
                    .framing = chunked_ ? Framing::kChunked : Framing::kClose,
                    .keep_alive = keep_alive_,
                    .version = settings_.version,
                    .more = &headers}));
  wake_once(std::move(lock));
}

bool Exchange::write(std::string data) {
  std::unique_lock lock(mutex_);
  CHECK(stage_ == Stage::kStreaming);
  if (gone_ || cut_) return false;
  if (data.empty() || settings_.head_only) return true;
  // One event may be larger than all that may wait.
  largest_ = std::max(largest_, data.size());
  if (unread_.load(std::memory_order_relaxed) + data.size() > settings_.max_unread + largest_) {
    cut_ = true;
    wake_once(std::move(lock));
    return false;
  }
  push(chunked_ ? format_chunk(data) : std::move(data));
  wake_once(std::move(lock));
  return true;
}

void Exchange::finish() {
  std::unique_lock lock(mutex_);
  CHECK(stage_ == Stage::kStreaming);
  stage_ = Stage::kComplete;
  if (chunked_ && !settings_.head_only) push(std::string(kLastChunk));
  callback_ = nullptr;
  wake_once(std::move(lock));
}

void Exchange::on_gone(std::function<void()> callback) {
  std::unique_lock lock(mutex_);
  if (stage_ == Stage::kComplete) return;
  if (!gone_) {
    callback_ = std::move(callback);
    return;
  }
  lock.unlock();
  callback();
}

void Exchange::abandon() {
  std::unique_lock lock(mutex_);
  if (stage_ == Stage::kComplete) return;
  callback_ = nullptr;
  if (stage_ == Stage::kStreaming) {
    stage_ = Stage::kComplete;
    cut_ = true;
    wake_once(std::move(lock));
    return;
  }
  lock.unlock();
  respond(500, "application/json", error_body(500, "The request was dropped without an answer."),
          {});
}

void Exchange::end_connection() {
  const std::lock_guard lock(mutex_);
  keep_alive_ = false;
}

Exchange::Output Exchange::take() {
  const std::lock_guard lock(mutex_);
  woken_ = false;
  Output output;
  output.buffers = std::exchange(queue_, {});
  output.complete = stage_ == Stage::kComplete;
  output.cut = cut_;
  output.keep_alive = keep_alive_;
  return output;
}

void Exchange::gone() {
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    callback = std::exchange(callback_, nullptr);
  }
  if (callback) callback();
}

std::shared_ptr<Responder> make_responder(std::shared_ptr<Exchange> exchange) {
  return std::make_shared<ExchangeResponder>(std::move(exchange));
}

}  // namespace lagoon::net
