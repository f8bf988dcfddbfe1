// One line in the log for each request that is answered.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace lagoon::api {

class RequestLog {
 public:
  // `method` and `path` as sent.
  RequestLog(std::string id, const std::string& method, const std::string& path);

  const std::string& id() const { return id_; }
  // The request has its answer; `usage` is null where nothing was generated. `status` 499 stands
  // for a client that left before.
  void done(int status, const engine::Usage* usage = nullptr) const;

 private:
  std::string id_;
  std::string method_;
  std::string path_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// "chatcmpl-" and 32 random hexadecimal digits.
std::string make_id(std::string_view prefix);

}  // namespace lagoon::api
