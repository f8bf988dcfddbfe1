#include "text/jinja/value.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "text/jinja/object.h"
#include "text/jinja/repr.h"

namespace lagoon::text::jinja {
namespace {

TEST(Dict, KeepsTheOrderOfInsertion) {
  Dict dict;
  // Enough keys to be searched by hash in the end.
  for (int i = 0; i < 100; ++i) dict.set(fmt::format("k{}", i * 37 % 100), i);
  dict.set("k37", "again");
  EXPECT_EQ(dict.size(), 100U);
  EXPECT_EQ(dict.items()[0].first, "k0");
  EXPECT_EQ(dict.items()[1].first, "k37");
  EXPECT_EQ(dict.items()[1].second.string(), "again");
  for (int i = 0; i < 100; ++i) {
    const Value* found = dict.find(fmt::format("k{}", i));
    ASSERT_NE(found, nullptr) << i;
    if (i != 37) {
      EXPECT_EQ(found->integer() * 37 % 100, i);
    }
  }
  EXPECT_EQ(dict.find("k100"), nullptr);
  EXPECT_EQ(Dict().find(""), nullptr);
}

TEST(Dict, CopiesAreIndependent) {
  Dict one;
  for (int i = 0; i < 40; ++i) one.set(std::to_string(i), i);
  Dict other = one;
  other.set("0", "changed");
  other.set("new", 1);
  EXPECT_EQ(one.find("0")->integer(), 0);
  EXPECT_EQ(one.find("new"), nullptr);
  EXPECT_EQ(other.find("39")->integer(), 39);
}

TEST(Value, Truth) {
  for (const Value& value : {Value(), Value(Undefined{"x"}), Value(false), Value(0), Value(0.0),
                             Value(""), Value(List()), Value(Dict()), Value::tuple({})}) {
    EXPECT_FALSE(value.truthy());
  }
  Dict dict;
  dict.set("", Value());
  for (const Value& value : {Value(true), Value(-1), Value(0.5), Value(" "), Value(List{Value()}),
                             Value(dict), Value::tuple({Value()})}) {
    EXPECT_TRUE(value.truthy());
  }
}

TEST(Value, Depth) {
  EXPECT_EQ(Value(1).depth(), 0);
  EXPECT_EQ(Value(List()).depth(), 1);
  EXPECT_EQ(Value(List{Value(List()), Value(1)}).depth(), 2);
  Dict dict;
  dict.set("a", Value::tuple({Value(List())}));
  EXPECT_EQ(Value(dict).depth(), 3);
}

TEST(Value, ToJson) {
  Dict dict;
  dict.set("z", List{Value(1), Value(1.0), Value(true), Value()});
  dict.set("a", "é\"\n");
  dict.set("t", Value::tuple({Value(Undefined{"x"})}));
  EXPECT_EQ(to_json(dict), R"({"z": [1, 1.0, true, null], "a": "é\"\n", "t": [null]})");
}

TEST(Repr, Floats) {
  const std::pair<double, const char*> cases[] = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {100.0, "100.0"},
      {0.1, "0.1"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {1e-4, "0.0001"},
      {1e-5, "1e-05"},
      {1.5e-7, "1.5e-07"},
      {1e100, "1e+100"},
      {123.456, "123.456"},
      {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {0.30000000000000004, "0.30000000000000004"},
      {9007199254740993.0, "9007199254740992.0"}};
  for (const auto& [number, text] : cases) EXPECT_EQ(repr_float(number), text);
}

}  // namespace
}  // namespace lagoon::text::jinja
