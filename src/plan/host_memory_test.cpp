#include "plan/host_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/test_support.h"

namespace lagoon::plan {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

// /proc and /sys/fs/cgroup of a machine with 128 GiB, of which 100 may be had.
class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() {
    write("proc/meminfo",
          "MemTotal:       134217728 kB\nMemFree:         1048576 kB\nMemAvailable:   104857600 "
          "kB\nBuffers:            1024 kB\n");
  }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(directory_.file(name)).parent_path());
    directory_.write(name, text);
  }
  // The files of a group of version 2.
  void write_v2(const std::string& group, const std::string& most, int64_t usage,
                int64_t inactive_file) {
    write("cgroup/cgroup.controllers", "memory\n");
    write("cgroup/" + group + "/memory.max", most + "\n");
    write("cgroup/" + group + "/memory.current", std::to_string(usage) + "\n");
    write("cgroup/" + group + "/memory.stat", "anon 1\nfile 2\ninactive_anon 3\ninactive_file " +
                                                  std::to_string(inactive_file) +
                                                  "\nactive_file 99\n");
  }
  void write_v1(const std::string& group, int64_t limit, int64_t usage, int64_t inactive_file) {
    write("cgroup/memory/" + group + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    write("cgroup/memory/" + group + "/memory.usage_in_bytes", std::to_string(usage) + "\n");
    write("cgroup/memory/" + group + "/memory.stat",
          "inactive_file 1\ntotal_inactive_file " + std::to_string(inactive_file) + "\n");
  }
  HostMemory read() {
    const auto memory =
        read_host_memory({.proc = directory_.file("proc"), .cgroup = directory_.file("cgroup")});
    EXPECT_TRUE(memory.ok()) << memory.error().message;
    return *memory;
  }

  checkpoint::TempDir directory_;
};

TEST_F(HostMemoryTest, WithoutGroups) {
  const HostMemory memory = read();
  EXPECT_EQ(memory.total_bytes(), 128 * kGiB);
  EXPECT_EQ(memory.free_bytes(), 100 * kGiB);
  EXPECT_EQ(memory.limited_by(), "MemAvailable");
}

// systemd-run -p MemoryMax=64G: 10 GiB are used, 4 of them page cache that goes first.
TEST_F(HostMemoryTest, VersionTwo) {
  write("proc/self/cgroup", "0::/user.slice/lagoon.scope\n");
  write_v2("user.slice", "max", 30 * kGiB, 0);
  write_v2("user.slice/lagoon.scope", std::to_string(64 * kGiB), 10 * kGiB, 4 * kGiB);
  const HostMemory memory = read();
  EXPECT_EQ(memory.free_bytes(), 58 * kGiB);
  EXPECT_EQ(memory.total_bytes(), 64 * kGiB);
  EXPECT_EQ(memory.limited_by(), "the control group /user.slice/lagoon.scope (v2)");
}

TEST_F(HostMemoryTest, AGroupAboveMayBeTighter) {
  write("proc/self/cgroup", "0::/user.slice/lagoon.scope\n");
  write_v2("user.slice", std::to_string(20 * kGiB), 15 * kGiB, kGiB);
  write_v2("user.slice/lagoon.scope", std::to_string(64 * kGiB), 10 * kGiB, 4 * kGiB);
  EXPECT_EQ(read().free_bytes(), 6 * kGiB);
  EXPECT_THAT(read().limited_by(), HasSubstr("/user.slice (v2)"));
}

TEST_F(HostMemoryTest, MemoryHighCounts) {
  write("proc/self/cgroup", "0::/a\n");
  write_v2("a", std::to_string(64 * kGiB), 10 * kGiB, 0);
  write("cgroup/a/memory.high", std::to_string(32 * kGiB));
  EXPECT_EQ(read().free_bytes(), 22 * kGiB);
}

TEST_F(HostMemoryTest, VersionOne) {
  write("proc/self/cgroup",
        "9:name=systemd:/\n5:cpuset,memory:/docker/abc\n1:cpu:/docker/abc\n0::/\n");
  write_v1("docker/abc", 16 * kGiB, 12 * kGiB, 2 * kGiB);
  const HostMemory memory = read();
  EXPECT_EQ(memory.free_bytes(), 6 * kGiB);
  EXPECT_EQ(memory.limited_by(), "the control group /docker/abc (v1)");
}

// What v1 writes where there is no limit.
TEST_F(HostMemoryTest, VersionOneWithoutLimit) {
  write("proc/self/cgroup", "4:memory:/a\n");
  write_v1("a", 9223372036854771712, 12 * kGiB, 0);
  EXPECT_FALSE(read().cgroup.has_value());
}

// A container sees its own group as the root, and its path of the host's is none there.
TEST_F(HostMemoryTest, InAContainer) {
  write("proc/self/cgroup", "4:memory:/kubepods/pod1/c1\n");
  write_v1(".", 8 * kGiB, kGiB, 0);
  EXPECT_EQ(read().free_bytes(), 7 * kGiB);
}

TEST_F(HostMemoryTest, WithoutProc) {
  const auto memory = read_host_memory({.proc = directory_.file("none"), .cgroup = ""});
  ASSERT_FALSE(memory.ok());
  EXPECT_THAT(memory.error().message, HasSubstr("none/meminfo"));
}

TEST_F(HostMemoryTest, LargestHolders) {
  const auto process = [&](int id, const std::string& name, int64_t anonymous, int64_t shared) {
    const std::string folder = "proc/" + std::to_string(id);
    write(folder + "/comm", name + "\n");
    write(folder + "/status", "Name:\t" + name + "\nVmRSS:\t 999999999 kB\nRssAnon:\t " +
                                  std::to_string(anonymous / 1024) + " kB\nRssFile:\t  77 kB\n" +
                                  "RssShmem:\t " + std::to_string(shared / 1024) + " kB\n");
  };
  process(11, "small", kGiB / 64, 0);
  process(12, "firefox", 2 * kGiB, 0);
  process(13, "vllm", 70 * kGiB, 10 * kGiB);
  process(14, "ray", 3 * kGiB, 0);
  write("proc/15/comm", "gone\n");
  const auto holders = largest_holders(2, {.proc = directory_.file("proc"), .cgroup = ""});
  ASSERT_EQ(holders.size(), 2U);
  EXPECT_EQ(describe(holders),
            "The largest holders of memory are vllm (process 13) with 80.00 GiB and ray (process "
            "14) with 3.00 GiB");
  EXPECT_EQ(describe({}), "");
}

TEST(HostMemory, ThisMachine) {
  const auto memory = read_host_memory();
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  EXPECT_GT(memory->free_bytes(), 0);
  EXPECT_LE(memory->free_bytes(), memory->total_bytes());
}

TEST(HostMemory, DropPageCache) {
  const checkpoint::TempDir directory;
  const size_t bytes = size_t{1} << 20;
  const std::string path = directory.write("file", std::string(bytes, 'x'));
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  ::fsync(descriptor);
  void* const map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  ASSERT_NE(map, MAP_FAILED);
  const auto resident = [&] {
    std::vector<unsigned char> pages(bytes / 4096);
    EXPECT_EQ(::mincore(map, bytes, pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
  };
  const auto before = resident();
  drop_page_cache({path, directory.file("none")});
  const auto after = resident();
  ::munmap(map, bytes);
  ::close(descriptor);
  if (before == 0) GTEST_SKIP() << "this file system has no page cache";
  EXPECT_LT(after, before);
}

}  // namespace
}  // namespace lagoon::plan
