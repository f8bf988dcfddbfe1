#include "api/response_store.h"

#include <utility>

namespace lagoon::api {
namespace {

// With what the maps around it take, roughly.
size_t bytes_of(const std::string& id, const StoredResponse& response) {
  return 2 * id.size() + response.body.size() + response.items.size() + 256;
}

}  // namespace

void ResponseStore::put(const std::string& id, StoredResponse response) {
  const size_t bytes = bytes_of(id, response);
  const std::lock_guard lock(mutex_);
  erase_locked(id);
  if (bytes > max_bytes_) return;
  while (bytes_ + bytes > max_bytes_) erase_locked(std::string(ages_.front()));
  const auto age = ages_.insert(ages_.end(), id);
  entries_.emplace(id, Entry{std::move(response), age});
  bytes_ += bytes;
}

std::optional<StoredResponse> ResponseStore::get(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return {};
  return found->second.response;
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  return erase_locked(id);
}

bool ResponseStore::erase_locked(const std::string& id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  bytes_ -= bytes_of(id, found->second.response);
  ages_.erase(found->second.age);
  entries_.erase(found);
  return true;
}

size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace lagoon::api
