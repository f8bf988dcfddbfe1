#include "api/request_log.h"

#include <fmt/core.h>

#include <utility>

#include "api/generation_params.h"
#include "base/log.h"

namespace lagoon::api {
namespace {

constexpr size_t kShown = 200;  // bytes of a path in the log

}  // namespace

RequestLog::RequestLog(std::string id, const std::string& method, const std::string& path)
    : id_(std::move(id)), method_(method.substr(0, kShown)), path_(path.substr(0, kShown)) {}

void RequestLog::done(int status, const engine::Usage* usage) const {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  if (usage == nullptr) {
    LOG_FOR(id_, info, "{} {} {} in {:.3f} s", method_, path_, status, seconds.count());
  } else {
    LOG_FOR(id_, info, "{} {} {} prompt {} tokens, answer {} tokens in {:.3f} s", method_, path_,
            status, usage->prompt_tokens, usage->completion_tokens, seconds.count());
  }
}

std::string make_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:016x}", prefix, random_seed(), random_seed());
}

}  // namespace lagoon::api
