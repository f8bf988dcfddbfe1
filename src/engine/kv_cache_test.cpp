#include "engine/kv_cache.h"

#include <gtest/gtest.h>

#include <set>

namespace lagoon::engine {
namespace {

TEST(KvCache, GivesPagesAsTheTableGrows) {
  KvCache cache(4, 16);
  PageTable table;
  EXPECT_EQ(cache.used(), 0);
  EXPECT_TRUE(cache.grow(table, 1));
  EXPECT_EQ(cache.used(), 1);
  EXPECT_TRUE(cache.grow(table, 16));
  EXPECT_EQ(cache.used(), 1);
  EXPECT_TRUE(cache.grow(table, 17));
  EXPECT_EQ(cache.used(), 2);
  EXPECT_TRUE(cache.grow(table, 5));  // never shrinks
  EXPECT_EQ(cache.used(), 2);
  EXPECT_TRUE(cache.grow(table, 48));
  EXPECT_EQ(table.pages().size(), 3u);
  cache.release(table);
  EXPECT_EQ(cache.used(), 0);
  EXPECT_TRUE(table.pages().empty());
}

TEST(KvCache, ThatDoesNotSufficeGivesNothing) {
  KvCache cache(4, 16);
  PageTable first;
  PageTable second;
  EXPECT_FALSE(cache.grow(first, 65));
  EXPECT_EQ(cache.used(), 0);
  ASSERT_TRUE(cache.grow(first, 40));
  EXPECT_FALSE(cache.grow(second, 17));
  EXPECT_EQ(cache.free(), 1);
  EXPECT_EQ(cache.reach(first), 64);
  EXPECT_EQ(cache.reach(second), 16);
  ASSERT_TRUE(cache.grow(second, 16));
  EXPECT_FALSE(cache.grow(first, 49));
  EXPECT_TRUE(cache.grow(first, 48));
  cache.release(first);
  EXPECT_EQ(cache.free(), 3);
}

TEST(KvCache, NoPageIsHeldTwice) {
  KvCache cache(8, 4);
  PageTable tables[3];
  for (int round = 0; round < 50; ++round) {
    PageTable& table = tables[round % 3];
    cache.release(table);
    if (!cache.grow(table, 1 + round * 7 % 12)) continue;
    std::set<int32_t> held;
    size_t taken = 0;
    for (const PageTable& other : tables) {
      held.insert(other.pages().begin(), other.pages().end());
      taken += other.pages().size();
    }
    ASSERT_EQ(held.size(), taken);
    ASSERT_EQ(cache.used(), static_cast<int>(taken));
  }
}

}  // namespace
}  // namespace lagoon::engine
