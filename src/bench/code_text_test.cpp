#include "bench/code_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lagoon::bench {
namespace {

TEST(MakeCode, TheSameForTheSameSeed) {
  EXPECT_EQ(make_code(3, 5000), make_code(3, 5000));
  EXPECT_EQ(make_code(3, 20'000).substr(0, 5000), make_code(3, 5000).substr(0, 5000));
}

TEST(MakeCode, AsLongAsAsked) {
  for (const size_t bytes : {1u, 100u, 4096u, 100'000u}) {
    const std::string code = make_code(1, bytes);
    EXPECT_GE(code.size(), bytes);
    EXPECT_LT(code.size(), bytes + 1000);
  }
}

TEST(MakeCode, SeedsDifferFromTheFirstLineOn) {
  const std::string one = make_code(1, 2000);
  const std::string two = make_code(2, 2000);
  EXPECT_NE(one.substr(0, one.find('\n')), two.substr(0, two.find('\n')));
}

// The text is fixed, so that figures of one version can be compared with those of another.
TEST(MakeCode, BeginsLikeThis) {
  const std::string code = make_code(0, 300);
  EXPECT_THAT(code, ::testing::StartsWith("# Module "));
  EXPECT_NE(code.find("\n\nlog = logging.getLogger(__name__)\n\n\ndef "), std::string::npos)
      << code;
  EXPECT_TRUE(std::all_of(code.begin(), code.end(),
                          [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

}  // namespace
}  // namespace lagoon::bench
