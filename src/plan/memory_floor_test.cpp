#include "plan/memory_floor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lagoon::plan {
namespace {

using ::testing::HasSubstr;

TEST(MemoryFloor, RefusesBelowItAndTakesAgain) {
  HostMemory memory{.total = int64_t{8} << 30, .available = int64_t{4} << 30};
  MemoryFloor floor(
      int64_t{1} << 30, [&] { return Result<HostMemory>(memory); }, std::chrono::milliseconds(0));
  EXPECT_EQ(floor.refusal(), std::nullopt);
  memory.available = int64_t{512} << 20;
  ASSERT_TRUE(floor.refusal().has_value());
  EXPECT_THAT(*floor.refusal(),
              HasSubstr("0.50 GiB of memory left (MemAvailable), and below 1.00"));
  memory.available = int64_t{2} << 30;
  EXPECT_EQ(floor.refusal(), std::nullopt);
  memory.cgroup = CgroupMemory{.group = "/a",
                               .version = 2,
                               .limit = int64_t{2} << 30,
                               .usage = int64_t{3} << 29,
                               .inactive_file = 0};
  EXPECT_THAT(floor.refusal().value_or(""), HasSubstr("control group /a"));
}

TEST(MemoryFloor, AnAnswerIsRemembered) {
  int asked = 0;
  MemoryFloor floor(
      1,
      [&] {
        ++asked;
        return Result<HostMemory>(HostMemory{.total = 2, .available = 2});
      },
      std::chrono::hours(1));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(floor.refusal(), std::nullopt);
  EXPECT_EQ(asked, 1);
}

TEST(MemoryFloor, WhatCannotBeReadRefusesNothing) {
  MemoryFloor floor(1, [] { return Result<HostMemory>(Error{}); });
  EXPECT_EQ(floor.refusal(), std::nullopt);
}

}  // namespace
}  // namespace lagoon::plan
