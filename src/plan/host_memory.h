// The memory of this machine, as the kernel tells it: what may still be taken, who has the rest,
// and the page cache of files. Where the files of /proc and of the control groups lie is an
// argument, so that tests can bring their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lagoon::plan {

struct SystemPaths {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

// The limit of a control group, in bytes.
struct CgroupMemory {
  std::string group;  // its path in the hierarchy, "/user.slice/lagoon.scope"
  int version = 2;    // of control groups: 1 or 2
  int64_t limit = 0;
  int64_t usage = 0;          // page cache included
  int64_t inactive_file = 0;  // the part of it that goes before anything is killed

  int64_t available() const;  // limit - usage + inactive_file, at least 0
};

struct HostMemory {
  int64_t total = 0;      // MemTotal
  int64_t available = 0;  // MemAvailable, which counts reclaimable page cache
  // The group of this process, or one above it, that has the least left; none: no limit.
  std::optional<CgroupMemory> cgroup = {};

  // What may be taken, and what there is at all: the lesser of machine and group.
  int64_t free_bytes() const;
  int64_t total_bytes() const;
  // "MemAvailable", or "the control group /x (v2)": what free_bytes() comes from.
  std::string limited_by() const;
};

// Error: /proc/meminfo cannot be read or lacks a field. A group without files is one without limit.
Result<HostMemory> read_host_memory(const SystemPaths& paths = {});

// A process and the memory that only its end frees: anonymous and shared pages, not page cache.
struct MemoryHolder {
  int process = 0;
  std::string name;
  int64_t bytes = 0;
};

// The `count` largest but this process itself, the largest first; those above 64 MiB only.
std::vector<MemoryHolder> largest_holders(size_t count, const SystemPaths& paths = {});

// "The largest holders are vllm (process 4711) with 80.12 GiB and ...", or "" for none.
std::string describe(const std::vector<MemoryHolder>& holders);

// Gives the page cache of these files back; what cannot be opened is passed over.
void drop_page_cache(const std::vector<std::string>& files);

}  // namespace lagoon::plan
