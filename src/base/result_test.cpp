#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace lagoon {
namespace {

Error not_found(const std::string& name) {
  return {ErrorCode::kNotFound, "no such file: " + name};
}

Result<int> half(int value) {
  if (value % 2 != 0) return Error{ErrorCode::kInvalidArgument, "odd"};
  return value / 2;
}

Result<int> quarter(int value) {
  LAGOON_ASSIGN(const int once, half(value));
  LAGOON_ASSIGN(const int twice, half(once));
  return twice;
}

Result<void> even(int value) {
  LAGOON_RETURN_IF_ERROR(half(value));
  return {};
}

TEST(Result, HoldsAValue) {
  const Result<int> result = 4;
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(static_cast<bool>(result));
  EXPECT_EQ(*result, 4);
  EXPECT_EQ(result.value(), 4);
}

TEST(Result, HoldsAnError) {
  const Result<int> result = not_found("a.json");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(result.error().message, "no such file: a.json");
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(**result, 7);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, ArrowReachesMembers) {
  Result<std::string> result = std::string("lagoon");
  EXPECT_EQ(result->size(), 6u);
  result->push_back('!');
  EXPECT_EQ(*result, "lagoon!");
}

TEST(Result, AssignPassesValuesAndErrorsOn) {
  ASSERT_TRUE(quarter(12).ok());
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(13).error().message, "odd");
  EXPECT_EQ(quarter(6).error().message, "odd");
}

TEST(Result, ReturnIfErrorPassesErrorsOn) {
  EXPECT_TRUE(even(2).ok());
  ASSERT_FALSE(even(3).ok());
  EXPECT_EQ(even(3).error().code, ErrorCode::kInvalidArgument);
}

TEST(ResultDeath, TakingWhatIsNotThereIsABug) {
  const Result<int> error = not_found("x");
  EXPECT_DEATH(static_cast<void>(error.value()), "CHECK failed: ok\\(\\)");
  const Result<int> value = 1;
  EXPECT_DEATH(static_cast<void>(value.error()), "CHECK failed: !ok\\(\\)");
  const Result<void> nothing;
  EXPECT_DEATH(static_cast<void>(nothing.error()), "CHECK failed");
}

TEST(CheckDeath, NamesFileLineAndCondition) {
  const int one = 1;
  CHECK(one == 1);
  EXPECT_DEATH(CHECK(one == 2), "result_test.cpp:[0-9]+: CHECK failed: one == 2");
}

}  // namespace
}  // namespace lagoon
