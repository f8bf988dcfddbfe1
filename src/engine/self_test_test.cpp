#include "engine/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_harness.h"
#include "engine/fake_model.h"

namespace lagoon::engine {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLength = 512;  // of FakeOptions

Now steady() {
  return [] { return Clock::now(); };
}

std::vector<std::vector<int32_t>> prompts() {
  return {test_prompt(100, 1), test_prompt(40, 2), test_prompt(70, 3)};
}

struct FakeDraft {
  std::shared_ptr<FakeRecord> record = std::make_shared<FakeRecord>();
  FakeModel model;
  explicit FakeDraft(int hits, FakeOptions options = {})
      : model(
            {},
            [&] {
              options.draft_hits = hits;
              return options;
            }(),
            record) {}
};

TEST(SelfTest, AGoodDraft) {
  // Every step takes a second, and a draft nothing.
  auto time = std::make_shared<Clock::time_point>();
  FakeOptions options;
  options.after_step = [time](int) { *time += std::chrono::seconds(1); };
  FakeDraft fake(80, options);
  const auto test = test_draft(fake.model, prompts(), 4, kLength, [time] { return *time; });
  ASSERT_TRUE(test.ok());
  EXPECT_FALSE(test->failed());
  EXPECT_GT(test->acceptance(), 0.4);
  EXPECT_LT(test->drafted, 100) << "that much is decided soon";
  EXPECT_NEAR(test->tokens_per_step(), 1 + 1.0 * test->accepted / test->steps, 1e-9);
  EXPECT_EQ(test->plain_seconds, 1);
  EXPECT_GT(test->gain(), 1.5);
  EXPECT_NEAR(test->gain(), test->tokens_per_step(), 0.3);
  EXPECT_THAT(describe(*test), HasSubstr("tokens per step"));
}

TEST(SelfTest, ADraftOfAnotherTarget) {
  FakeDraft fake(0);
  const auto test = test_draft(fake.model, prompts(), 6, kLength, steady());
  ASSERT_TRUE(test.ok());
  EXPECT_TRUE(test->failed());
  EXPECT_GE(test->drafted, kSelfTestDrafts);
  EXPECT_LT(test->drafted, kSelfTestDrafts + 6);
  EXPECT_EQ(test->accepted, 0);
}

TEST(SelfTest, AShortContext) {
  FakeOptions options;
  options.info.pages = 4;  // of 16 positions
  FakeDraft fake(80, options);
  const auto test = test_draft(fake.model, prompts(), 6, kLength, steady());
  ASSERT_TRUE(test.ok());
  EXPECT_FALSE(test->failed());
}

// A length below that of the checkpoint ends inside a page, and before the last one: a model takes
// no step beyond it.
TEST(SelfTest, AModelLoadedForLess) {
  for (const int length : {2, 5, 17, 30, 60, 100, 128}) {
    FakeDraft fake(80);
    const auto test = test_draft(fake.model, prompts(), 3, length, steady());
    ASSERT_TRUE(test.ok()) << length;
    EXPECT_FALSE(test->failed()) << length;
    EXPECT_EQ(test->drafted > 0, length > 30) << length;
    for (const FakeCall& call : fake.record->calls) {
      if (call.kind != FakeCall::Kind::kStep) continue;
      for (const auto& part : call.parts) EXPECT_LE(part.position + part.rows, length);
    }
  }
}

TEST(SelfTest, WhereNothingCouldBeDraftedNothingIsJudged) {
  FakeDraft fake(0);
  const auto test = test_draft(fake.model, prompts(), 6, 10, steady());
  ASSERT_TRUE(test.ok());
  EXPECT_EQ(test->drafted, 0);
  EXPECT_FALSE(test->failed());
  EXPECT_THAT(describe(*test), HasSubstr("not tried"));
}

TEST(SelfTest, StepsOfFewRows) {
  for (const int rows : {1, 2, 4}) {
    FakeOptions options;
    options.info.max_rows = rows;
    FakeDraft fake(80, options);
    const auto test = test_draft(fake.model, prompts(), 4, kLength, steady());
    ASSERT_TRUE(test.ok()) << rows;
    EXPECT_FALSE(test->failed()) << rows;
    EXPECT_EQ(test->drafted > 0, rows > 1) << rows;
  }
}

TEST(SelfTest, AModelThatFails) {
  FakeOptions options;
  options.fails_at_step = 5;
  FakeDraft fake(80, options);
  const auto test = test_draft(fake.model, prompts(), 6, kLength, steady());
  ASSERT_FALSE(test.ok());
}

TEST(SelfTest, TellsHowFarItIs) {
  FakeDraft fake(0);
  std::vector<double> shares;
  ASSERT_TRUE(test_draft(fake.model, prompts(), 8, kLength, steady(), [&](double s) {
                shares.push_back(s);
              }).ok());
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_EQ(shares.back(), 1);
}

// The sequence that was tested leaves nothing behind: what is served after it is the same.
TEST(SelfTest, ServingGoesOnAsIfItHadNotBeen) {
  Rig with;
  Rig without;
  without.options.proposals = with.options.proposals = 4;
  auto model = std::make_unique<FakeModel>(with.target, with.fake, with.record);
  ASSERT_TRUE(test_draft(*model, prompts(), 4, kLength, steady()).ok());
  with.engine = Engine::start(std::move(model), test_tokenizer(), with.metrics, "m", with.options);
  without.start();
  const Request request = test_request(test_prompt(20, 9), 30);
  EXPECT_EQ(with.run(request).tokens, without.run(request).tokens);
}

TEST(SelfTest, ThePromptsAreCode) {
  const auto made = self_test_prompts(test_tokenizer());
  ASSERT_GE(made.size(), 4U);
  for (const auto& prompt : made) EXPECT_GT(prompt.size(), 20U);
}

}  // namespace
}  // namespace lagoon::engine
