#include "bench/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>

namespace lagoon::bench {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Answers at once with made-up times; counts what it is asked.
class FakeSubject : public Subject {
 public:
  Result<Prompt> make_prompt(const RequestShape&, uint64_t seed) override {
    EXPECT_TRUE(seeds.insert(seed).second) << "a prompt twice";
    return Prompt{.tokens = {}, .text = "", .seed = seed};
  }
  Result<Answer> ask(const RequestShape& shape, const Prompt&) override {
    const int number = ++asked;
    if (number == fail_at) return Error{ErrorCode::kUnavailable, "gone"};
    const std::lock_guard lock(mutex);
    drafts += 10;
    const Clock::time_point sent;
    // The warm-up is slow, and only the warm-up.
    const milliseconds first = sent.time_since_epoch().count() == 0 && number <= slow
                                   ? milliseconds(5000)
                                   : milliseconds(100);
    return Answer{.prompt_tokens = shape.input_length,
                  .completion_tokens = shape.output_length,
                  .sent = sent,
                  .first = sent + first,
                  .last = sent + first + milliseconds(1000)};
  }
  Result<std::optional<Counts>> counts() override {
    if (!counting) return std::optional<Counts>();
    Counts counts;
    counts.speculation = true;
    counts.drafts = drafts;
    counts.drafted = drafts * 6;
    counts.accepted = drafts * 3;
    return std::optional<Counts>(counts);
  }

  std::set<uint64_t> seeds;
  std::atomic<int> asked{0};
  int fail_at = -1;
  int slow = 0;
  bool counting = true;
  std::mutex mutex;
  double drafts = 1000;  // of others, before
};

Measurement three_streams() {
  Measurement measurement;
  measurement.shape.input_length = 64;
  measurement.shape.output_length = 101;
  measurement.streams = 3;
  measurement.warmup = 1;
  measurement.repeats = 2;
  return measurement;
}

TEST(Measure, RoundsWarmUpAndCounts) {
  FakeSubject subject;
  subject.slow = 3;  // the warm-up
  std::vector<std::string> heard;
  const auto row =
      measure(subject, three_streams(), [&](const std::string& line) { heard.push_back(line); });
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(subject.asked, 9);
  EXPECT_EQ(subject.seeds.size(), 9u);
  EXPECT_THAT(heard, ::testing::ElementsAre("warm-up 1 of 1", "round 1 of 2", "round 2 of 2"));
  EXPECT_EQ(row->decode_rate.values.size(), 6u);
  EXPECT_DOUBLE_EQ(row->decode_rate.median, 100);
  EXPECT_DOUBLE_EQ(row->first_token.most, 0.1);
  EXPECT_EQ(row->total_rate.values.size(), 2u);
  EXPECT_DOUBLE_EQ(row->total_rate.median, 300);
  ASSERT_TRUE(row->speculation.has_value());
  EXPECT_DOUBLE_EQ(row->speculation->accepted_per_step, 3);
}

TEST(Measure, WithoutCountsThereIsNoSpeculation) {
  FakeSubject subject;
  subject.counting = false;
  const auto row = measure(subject, three_streams(), [](const std::string&) {});
  ASSERT_TRUE(row.ok());
  EXPECT_FALSE(row->speculation.has_value());
}

TEST(Measure, TheFirstErrorEndsIt) {
  FakeSubject subject;
  subject.fail_at = 5;
  const auto row = measure(subject, three_streams(), [](const std::string&) {});
  ASSERT_FALSE(row.ok());
  EXPECT_THAT(row.error().message, HasSubstr("gone"));
  EXPECT_EQ(subject.asked, 6);  // all of the round ended
}

}  // namespace
}  // namespace lagoon::bench
