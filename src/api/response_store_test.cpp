#include "api/response_store.h"

#include <gtest/gtest.h>

#include <string>

namespace lagoon::api {
namespace {

StoredResponse of_bytes(size_t bytes) {
  return {.body = std::string(bytes, 'b'), .items = "i"};
}

TEST(ResponseStore, KeepsTheNewestWithinItsBound) {
  ResponseStore store(10'000);
  for (int i = 0; i < 20; ++i) {
    store.put(std::to_string(i), of_bytes(1000));
    EXPECT_LE(store.bytes(), 10'000U);
  }
  EXPECT_FALSE(store.get("0"));
  EXPECT_FALSE(store.get("12"));
  ASSERT_TRUE(store.get("19"));
  EXPECT_EQ(store.get("19")->items, "i");
  // One that fills it all drives the others out, one that is too large none.
  store.put("all", of_bytes(9000));
  EXPECT_FALSE(store.get("19"));
  store.put("more", of_bytes(10'000));
  EXPECT_FALSE(store.get("more"));
  EXPECT_TRUE(store.get("all"));
}

TEST(ResponseStore, CountsWhatItHas) {
  ResponseStore store(10'000);
  store.put("a", of_bytes(1000));
  const size_t one = store.bytes();
  store.put("a", of_bytes(1000));
  EXPECT_EQ(store.bytes(), one);
  store.put("a", of_bytes(20'000));  // replaced by nothing
  EXPECT_EQ(store.bytes(), 0U);
  store.put("a", of_bytes(1));
  EXPECT_TRUE(store.erase("a"));
  EXPECT_FALSE(store.erase("a"));
  EXPECT_EQ(store.bytes(), 0U);
  ResponseStore none(0);
  none.put("a", of_bytes(1));
  EXPECT_FALSE(none.get("a"));
}

}  // namespace
}  // namespace lagoon::api
