#include "plan/host_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace lagoon::plan {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUnlimited = int64_t{1} << 60;  // v1 writes about 2^63 for no limit
constexpr int64_t kLeastHolder = int64_t{64} << 20;

std::optional<int64_t> to_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

// The first word of a file as a number; none where there is no such file, or it says "max".
std::optional<int64_t> read_number(const fs::path& path) {
  std::string text;
  std::ifstream(path) >> text;
  return to_number(text);
}

// The number after `key` and blanks in a file of such lines ("MemTotal:  24105 kB").
std::optional<int64_t> read_field(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t at = line.find_first_not_of(" \t", key.size());
    if (at == std::string::npos || at == key.size()) continue;  // another, longer key
    return to_number(std::string_view(line).substr(at));
  }
  return std::nullopt;
}

// One level of a hierarchy; none where it has no limit.
std::optional<CgroupMemory> read_level(const fs::path& directory, int version) {
  CgroupMemory memory;
  memory.version = version;
  if (version == 2) {
    // Above memory.high a group is throttled until it stands still.
    const int64_t most = read_number(directory / "memory.max").value_or(kUnlimited);
    memory.limit = std::min(most, read_number(directory / "memory.high").value_or(kUnlimited));
    memory.usage = read_number(directory / "memory.current").value_or(0);
    memory.inactive_file = read_field(directory / "memory.stat", "inactive_file").value_or(0);
  } else {
    memory.limit = read_number(directory / "memory.limit_in_bytes").value_or(kUnlimited);
    memory.usage = read_number(directory / "memory.usage_in_bytes").value_or(0);
    memory.inactive_file = read_field(directory / "memory.stat", "total_inactive_file").value_or(0);
  }
  if (memory.limit >= kUnlimited) return std::nullopt;
  return memory;
}

// A process' place in a hierarchy, from /proc/self/cgroup: "4:memory:/a/b" (v1), "0::/a/b" (v2).
struct Membership {
  fs::path root;  // of the hierarchy
  std::string group;
  int version = 2;
};

std::vector<Membership> memberships(const SystemPaths& paths) {
  std::vector<Membership> found;
  std::ifstream file(fs::path(paths.proc) / "self/cgroup");
  const fs::path root = paths.cgroup;
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    std::error_code error;
    if (controllers == ",,") {
      // Beside v1 the second version is mounted in a folder of its own.
      const bool alone = fs::exists(root / "cgroup.controllers", error);
      found.push_back({.root = alone ? root : root / "unified", .group = group, .version = 2});
    } else if (controllers.find(",memory,") != std::string::npos) {
      found.push_back({.root = root / "memory", .group = group, .version = 1});
    }
  }
  return found;
}

// The tightest level from the group up to the root. In a container the root may be the group
// itself, and its path be none: then the levels that are missing have no limit.
std::optional<CgroupMemory> tightest(const Membership& membership) {
  std::optional<CgroupMemory> least;
  std::string group = membership.group;
  while (true) {
    while (group.size() > 1 && group.ends_with('/')) group.pop_back();
    const fs::path below = fs::path(group).relative_path();
    if (auto level = read_level(membership.root / below, membership.version)) {
      level->group = group.empty() ? "/" : group;
      if (!least || level->available() < least->available()) least = std::move(level);
    }
    if (group.empty() || group == "/") return least;
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
}

bool is_number(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

int64_t CgroupMemory::available() const {
  return std::max<int64_t>(limit - usage + inactive_file, 0);
}

int64_t HostMemory::free_bytes() const {
  return cgroup ? std::min(available, cgroup->available()) : available;
}

int64_t HostMemory::total_bytes() const {
  return cgroup ? std::min(total, cgroup->limit) : total;
}

std::string HostMemory::limited_by() const {
  if (!cgroup || cgroup->available() >= available) return "MemAvailable";
  return fmt::format("the control group {} (v{})", cgroup->group, cgroup->version);
}

Result<HostMemory> read_host_memory(const SystemPaths& paths) {
  const fs::path file = fs::path(paths.proc) / "meminfo";
  const auto total = read_field(file, "MemTotal:");
  const auto available = read_field(file, "MemAvailable:");
  if (!total || !available) {
    return Error{ErrorCode::kInternal,
                 fmt::format("{} does not tell MemTotal and MemAvailable: mount /proc, or run on a "
                             "Linux of 3.14 or newer",
                             file.string())};
  }
  HostMemory memory;
  memory.total = *total * 1024;
  memory.available = *available * 1024;
  for (const Membership& membership : memberships(paths)) {
    auto group = tightest(membership);
    if (!group) continue;
    if (!memory.cgroup || group->available() < memory.cgroup->available()) {
      memory.cgroup = std::move(group);
    }
  }
  return memory;
}

std::vector<MemoryHolder> largest_holders(size_t count, const SystemPaths& paths) {
  std::vector<MemoryHolder> holders;
  std::error_code error;
  for (fs::directory_iterator at(paths.proc, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!is_number(name) || name == std::to_string(::getpid())) continue;
    const fs::path status = at->path() / "status";
    MemoryHolder holder;
    holder.process = static_cast<int>(to_number(name).value_or(0));
    holder.bytes = 1024 * (read_field(status, "RssAnon:").value_or(0) +
                           read_field(status, "RssShmem:").value_or(0));
    if (holder.bytes < kLeastHolder) continue;
    std::getline(std::ifstream(at->path() / "comm"), holder.name);
    holders.push_back(std::move(holder));
  }
  std::sort(holders.begin(), holders.end(),
            [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  holders.resize(std::min(holders.size(), count));
  return holders;
}

std::string describe(const std::vector<MemoryHolder>& holders) {
  if (holders.empty()) return "";
  std::string text =
      holders.size() == 1 ? "The largest holder is " : "The largest holders of memory are ";
  for (size_t i = 0; i < holders.size(); ++i) {
    const MemoryHolder& holder = holders[i];
    const char* const before = i == 0 ? "" : i + 1 == holders.size() ? " and " : ", ";
    text += fmt::format("{}{} (process {}) with {:.2f} GiB", before,
                        holder.name.empty() ? "a program" : holder.name, holder.process,
                        static_cast<double>(holder.bytes) / (1 << 30));
  }
  return text;
}

void drop_page_cache(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) continue;
    ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    ::close(descriptor);
  }
}

}  // namespace lagoon::plan
