#include "base/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace lagoon {
namespace {

// Field `index` (counted from 1, proc(5)) of /proc/self/stat, from the third on.
double stat_field(int index) {
  std::string text;
  std::getline(std::ifstream("/proc/self/stat"), text);
  // The second is the program's name in parentheses, which may hold blanks.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 3; i <= index; ++i) fields >> field;
  return fields ? std::strtod(field.c_str(), nullptr) : 0;
}

double memory(int field) {
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  for (int i = 0; i <= field; ++i) file >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

// Unix time: that of the machine's start, and the ticks from there to the process' start.
double start_time() {
  std::ifstream file("/proc/stat");
  double boot = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) boot = std::strtod(line.c_str() + 6, nullptr);
  }
  constexpr int kStartTime = 22;
  return boot + stat_field(kStartTime) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double open_files() {
  DIR* const directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int entries = 0;
  while (::readdir(directory) != nullptr) ++entries;
  ::closedir(directory);
  return entries - 3;  // ".", ".." and the directory itself
}

double most_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

void add_process_metrics(MetricsRegistry& registry) {
  registry.counter_from("process_cpu_seconds_total",
                        "Total user and system CPU time spent in seconds.", cpu_seconds);
  registry.gauge_from("process_start_time_seconds",
                      "Start time of the process since unix epoch in seconds.",
                      [start = start_time()] { return start; });
  registry.gauge_from("process_resident_memory_bytes", "Resident memory size in bytes.",
                      [] { return memory(1); });
  registry.gauge_from("process_virtual_memory_bytes", "Virtual memory size in bytes.",
                      [] { return memory(0); });
  registry.gauge_from("process_open_fds", "Number of open file descriptors.", open_files);
  registry.gauge_from("process_max_fds", "Maximum number of open file descriptors.", most_files);
}

}  // namespace lagoon
