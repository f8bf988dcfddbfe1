#include "base/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>
#include <string>
#include <thread>

#include "base/process_metrics.h"

namespace lagoon {
namespace {

using testing::HasSubstr;

TEST(Metrics, UntouchedMetricsAreExposedAtZero) {
  MetricsRegistry registry;
  registry.counter("lagoon:tokens_total", "Tokens.");
  registry.gauge("lagoon_running", "Requests at work.");
  registry.histogram("lagoon_seconds", "Time.", {0.5, 1});
  EXPECT_EQ(registry.render(),
            "# HELP lagoon:tokens_total Tokens.\n"
            "# TYPE lagoon:tokens_total counter\n"
            "lagoon:tokens_total 0\n"
            "# HELP lagoon_running Requests at work.\n"
            "# TYPE lagoon_running gauge\n"
            "lagoon_running 0\n"
            "# HELP lagoon_seconds Time.\n"
            "# TYPE lagoon_seconds histogram\n"
            "lagoon_seconds_bucket{le=\"0.5\"} 0\n"
            "lagoon_seconds_bucket{le=\"1\"} 0\n"
            "lagoon_seconds_bucket{le=\"+Inf\"} 0\n"
            "lagoon_seconds_sum 0\n"
            "lagoon_seconds_count 0\n");
}

TEST(Metrics, OneFamilyHoldsAllItsLabels) {
  MetricsRegistry registry;
  registry.counter("requests_total", "Requests.", {{"reason", "stop"}}).add(3);
  registry.gauge("other", "Between.");
  registry.counter("requests_total", "Requests.", {{"reason", "length"}, {"engine", "0"}}).add();
  EXPECT_EQ(registry.render(),
            "# HELP requests_total Requests.\n"
            "# TYPE requests_total counter\n"
            "requests_total{reason=\"stop\"} 3\n"
            "requests_total{reason=\"length\",engine=\"0\"} 1\n"
            "# HELP other Between.\n"
            "# TYPE other gauge\n"
            "other 0\n");
}

TEST(Metrics, SameNameAndLabelsAreTheSameMetric) {
  MetricsRegistry registry;
  Counter& first = registry.counter("a_total", "A.", {{"x", "1"}});
  Counter& other = registry.counter("a_total", "A.", {{"x", "2"}});
  EXPECT_EQ(&registry.counter("a_total", "A.", {{"x", "1"}}), &first);
  EXPECT_NE(&first, &other);
  EXPECT_EQ(&registry.gauge("g", "G."), &registry.gauge("g", "G."));
  EXPECT_EQ(&registry.histogram("h", "H.", {1}), &registry.histogram("h", "H.", {1}));
}

TEST(Metrics, ReferencesSurviveGrowth) {
  MetricsRegistry registry;
  Counter& first = registry.counter("first_total", "First.", {{"i", "0"}});
  for (int i = 1; i < 100; ++i) {
    registry.counter("first_total", "First.", {{"i", std::to_string(i)}});
    registry.counter("other_" + std::to_string(i) + "_total", "Other.");
  }
  first.add(7);
  EXPECT_THAT(registry.render(), HasSubstr("first_total{i=\"0\"} 7\n"));
}

TEST(Metrics, HelpAndLabelValuesAreEscaped) {
  MetricsRegistry registry;
  registry.counter("a_total", "back\\slash \"quote\"\nline", {{"path", "C:\\x \"y\"\nz"}});
  EXPECT_EQ(registry.render(),
            "# HELP a_total back\\\\slash \"quote\"\\nline\n"
            "# TYPE a_total counter\n"
            "a_total{path=\"C:\\\\x \\\"y\\\"\\nz\"} 0\n");
}

TEST(Metrics, GaugesPrintAsShortAsTheyReadBack) {
  MetricsRegistry registry;
  Gauge& gauge = registry.gauge("g", "G.");
  const auto shown = [&](double value) {
    gauge.set(value);
    const std::string text = registry.render();
    const size_t line = text.rfind("g ");
    return text.substr(line + 2, text.size() - line - 3);
  };
  EXPECT_EQ(shown(12), "12");
  EXPECT_EQ(shown(-3), "-3");
  EXPECT_EQ(shown(0.1), "0.1");
  EXPECT_EQ(shown(123456789012.0), "123456789012");
  EXPECT_EQ(shown(1e300), "1e+300");
  EXPECT_EQ(shown(std::numeric_limits<double>::infinity()), "+Inf");
  EXPECT_EQ(shown(-std::numeric_limits<double>::infinity()), "-Inf");
  EXPECT_EQ(shown(std::nan("")), "NaN");
}

TEST(Metrics, CountersAreExactBeyondWhatADoubleHolds) {
  MetricsRegistry registry;
  registry.counter("a_total", "A.").add((uint64_t{1} << 53) + 1);
  EXPECT_THAT(registry.render(), HasSubstr("a_total 9007199254740993\n"));
}

TEST(Metrics, HistogramBucketsAreCumulativeAndHoldTheirBound) {
  MetricsRegistry registry;
  Histogram& histogram = registry.histogram("h", "H.", {1, 2.5, 10}, {{"m", "x"}});
  for (const double value : {0.5, 1.0, 1.5, 2.5, 11.0}) histogram.observe(value);
  EXPECT_THAT(registry.render(), HasSubstr("h_bucket{m=\"x\",le=\"1\"} 2\n"
                                           "h_bucket{m=\"x\",le=\"2.5\"} 4\n"
                                           "h_bucket{m=\"x\",le=\"10\"} 4\n"
                                           "h_bucket{m=\"x\",le=\"+Inf\"} 5\n"
                                           "h_sum{m=\"x\"} 16.5\n"
                                           "h_count{m=\"x\"} 5\n"));
  EXPECT_EQ(histogram.bucket(0), 2u);
  EXPECT_EQ(histogram.bucket(3), 1u);
}

TEST(Metrics, HistogramCountsNotANumberInTheLastBucket) {
  Histogram histogram({1});
  histogram.observe(std::nan(""));
  EXPECT_EQ(histogram.bucket(0), 0u);
  EXPECT_EQ(histogram.bucket(1), 1u);
}

TEST(Metrics, SummariesHaveNumberAndSum) {
  MetricsRegistry registry;
  Summary& summary = registry.summary("s_bytes", "S.", {{"a", "x"}});
  EXPECT_EQ(&summary, &registry.summary("s_bytes", "S.", {{"a", "x"}}));
  summary.observe(2);
  summary.observe(0.5);
  EXPECT_EQ(registry.render(),
            "# HELP s_bytes S.\n# TYPE s_bytes summary\ns_bytes_sum{a=\"x\"} 2.5\n"
            "s_bytes_count{a=\"x\"} 2\n");
}

TEST(Metrics, SourcesAreAskedWhenRendered) {
  MetricsRegistry registry;
  double value = 1.5;
  registry.counter_from("c_total", "C.", [&] { return value; });
  registry.gauge_from("g", "G.", [] { return -1; });
  value = 2.5;
  EXPECT_THAT(registry.render(), HasSubstr("# TYPE c_total counter\nc_total 2.5\n"));
  EXPECT_THAT(registry.render(), HasSubstr("# TYPE g gauge\ng -1\n"));
}

TEST(Metrics, OfTheProcess) {
  MetricsRegistry registry;
  add_process_metrics(registry);
  const auto value = [&](const std::string& name) {
    const std::string text = registry.render();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  };
  EXPECT_GT(value("process_resident_memory_bytes"), 1e6);
  EXPECT_GT(value("process_virtual_memory_bytes"), value("process_resident_memory_bytes"));
  EXPECT_GE(value("process_open_fds"), 3);
  EXPECT_GT(value("process_max_fds"), value("process_open_fds"));
  EXPECT_NEAR(value("process_start_time_seconds"), static_cast<double>(std::time(nullptr)), 600);
  const double before = value("process_cpu_seconds_total");
  for (int i = 0; i < 100; ++i) registry.render();
  EXPECT_GT(value("process_cpu_seconds_total"), before);
}

TEST(Metrics, ThreadsUpdateAndRenderAtOnce) {
  MetricsRegistry registry;
  Histogram& histogram = registry.histogram("h", "H.", {10, 100});
  constexpr int kThreads = 4;
  constexpr int kUpdates = 2000;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&registry, &histogram, t] {
      for (int i = 0; i < kUpdates; ++i) {
        registry.counter("a_total", "A.", {{"t", std::to_string(t % 2)}}).add();
        histogram.observe(i % 200);
        if (i % 500 == 0) registry.render();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = registry.render();
  EXPECT_THAT(text, HasSubstr("a_total{t=\"0\"} 4000\n"));
  EXPECT_THAT(text, HasSubstr("a_total{t=\"1\"} 4000\n"));
  EXPECT_THAT(text, HasSubstr("h_count 8000\n"));
  EXPECT_THAT(text, HasSubstr("h_sum 796000\n"));
}

TEST(MetricsDeath, MistakesInNamesAreBugs) {
  MetricsRegistry registry;
  EXPECT_DEATH(registry.counter("requests", "No suffix."), "CHECK failed");
  EXPECT_DEATH(registry.gauge("9lives", "Digit first."), "CHECK failed");
  EXPECT_DEATH(registry.gauge("a b", "Space."), "CHECK failed");
  EXPECT_DEATH(registry.gauge("g", "Label.", {{"a:b", ""}}), "CHECK failed");
  registry.gauge("g", "G.");
  EXPECT_DEATH(registry.histogram("g", "Another type.", {1}), "CHECK failed");
  EXPECT_DEATH(registry.histogram("h", "Not ascending.", {1, 1}), "CHECK failed");
}

}  // namespace
}  // namespace lagoon
