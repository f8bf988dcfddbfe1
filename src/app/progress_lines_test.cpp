#include "app/progress_lines.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace lagoon::app {
namespace {

using checkpoint::LoadPhase;
using checkpoint::LoadProgress;
using std::chrono::milliseconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string text_of(FILE* file) {
  std::rewind(file);
  std::string text(10000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

TEST(ProgressLines, ALineAtATimeWhereNobodyWatches) {
  FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  LoadProgress progress;
  {
    const ProgressLines lines(file, progress, milliseconds(5));
    std::this_thread::sleep_for(milliseconds(30));
    EXPECT_EQ(text_of(file), "") << "nothing is read yet";
    progress.set_total(4'000'000'000);
    progress.enter(LoadPhase::kReadingTarget);
    progress.add_bytes(1'000'000'000);
    std::this_thread::sleep_for(milliseconds(100));
    progress.enter(LoadPhase::kPreparing);
  }
  const std::string text = text_of(file);
  EXPECT_THAT(text, StartsWith("reading the target: 1.00 of 4.00 GB (25 %)"));
  EXPECT_THAT(text, EndsWith("\n"));
  EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  std::fclose(file);
}

TEST(ProgressLines, ABarOnATerminal) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0)
    GTEST_SKIP() << "no terminal can be made";
  FILE* const file = std::fopen(::ptsname(terminal), "r+");
  ASSERT_NE(file, nullptr);
  LoadProgress progress;
  progress.set_total(100);
  progress.enter(LoadPhase::kReadingDraft);
  progress.add_bytes(50);
  {
    const ProgressLines lines(file, progress, milliseconds(5));
    std::this_thread::sleep_for(milliseconds(100));
  }
  // A terminal gives what was written in parts.
  ASSERT_EQ(::fcntl(terminal, F_SETFL, O_NONBLOCK), 0);
  std::string shown;
  std::array<char, 4000> part = {};
  for (ssize_t n = 0; (n = ::read(terminal, part.data(), part.size())) > 0;)
    shown.append(part.data(), static_cast<size_t>(n));
  EXPECT_THAT(shown, StartsWith("\r\x1b[K[############............] reading the draft: "));
  EXPECT_THAT(shown, EndsWith("\r\x1b[K")) << "it is wiped out in the end";
  EXPECT_EQ(shown.find('\n'), std::string::npos);
  std::fclose(file);
  ::close(terminal);
}

TEST(ProgressBar, FitsTheTerminal) {
  LoadProgress::State state;
  state.phase = LoadPhase::kReadingTarget;
  state.bytes_total = 100;
  EXPECT_EQ(progress_bar(state, 80),
            "[........................] reading the target: 0.00 of 0.00 GB (0 %)");
  EXPECT_EQ(progress_bar(state, 20).size(), 19u);
  state.bytes_done = 100;
  EXPECT_THAT(progress_bar(state, 80), HasSubstr("[########################]"));
}

}  // namespace
}  // namespace lagoon::app
