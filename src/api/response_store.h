// Answers of /v1/responses that are kept, in memory, so that a request may go on with one of them
// (previous_response_id) or ask for it. Any thread.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace lagoon::api {

struct StoredResponse {
  std::string body;   // the response, JSON
  std::string items;  // all input and output items up to its end: JSON, a list without brackets
};

class ResponseStore {
 public:
  // Keeps at most so many bytes: what was added first goes first. 0: nothing is kept.
  explicit ResponseStore(size_t max_bytes) : max_bytes_(max_bytes) {}

  // One of the same id is replaced. One that alone is above the bound is not kept.
  void put(const std::string& id, StoredResponse response);
  std::optional<StoredResponse> get(const std::string& id) const;
  // False where there is none.
  bool erase(const std::string& id);
  size_t bytes() const;

 private:
  struct Entry {
    StoredResponse response;
    std::list<std::string>::iterator age;
  };

  bool erase_locked(const std::string& id);

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::list<std::string> ages_;  // ids, the oldest first
  size_t bytes_ = 0;
};

}  // namespace lagoon::api
