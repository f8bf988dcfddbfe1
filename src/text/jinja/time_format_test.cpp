#include "text/jinja/time_format.h"

#include <gtest/gtest.h>

#include "text/jinja/error.h"

namespace lagoon::text::jinja {
namespace {

// What Python 3.11 gives for datetime(2026, 3, 5, 7, 8, 9, 42).strftime(format).
TEST(TimeFormat, AsPython) {
  std::tm time{};
  time.tm_year = 2026 - 1900;
  time.tm_mon = 2;
  time.tm_mday = 5;
  time.tm_hour = 7;
  time.tm_min = 8;
  time.tm_sec = 9;
  time.tm_wday = 4;
  time.tm_yday = 63;
  const std::pair<const char*, const char*> cases[] = {
      {"%d %b %Y", "05 Mar 2026"},
      {"%A, %B %d, %Y", "Thursday, March 05, 2026"},
      {"%a %j %U %W %w %u %V %G", "Thu 064 09 09 4 4 10 2026"},
      {"%H:%M:%S.%f %I %p %y", "07:08:09.000042 07 AM 26"},
      {"%Y-%m-%dT%H:%M:%S%z", "2026-03-05T07:08:09"},
      {"[%Z]", "[]"},
      {"%z", ""},
      {"%%f %% %-d %e", "%f % 5  5"},
      {"%c|%x|%X", "Thu Mar  5 07:08:09 2026|03/05/26|07:08:09"},
      {"%D %F %T %R", "03/05/26 2026-03-05 07:08:09 07:08"},
      {"", ""},
      {"Stand: %Y – 日本", "Stand: 2026 – 日本"},
  };
  for (const auto& [format, text] : cases) EXPECT_EQ(format_time(time, 42, format), text) << format;
}

TEST(TimeFormat, RefusesWhatIsTooLong) {
  EXPECT_THROW(format_time(std::tm{}, 0, "%100000d"), Failure);
  EXPECT_THROW(format_time(std::tm{}, 0, std::string_view("%d\0", 3)), Failure);
}

}  // namespace
}  // namespace lagoon::text::jinja
