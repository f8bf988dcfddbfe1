// A registry of counters, gauges and histograms and their Prometheus text exposition (format 0.0.4,
// https://prometheus.io/docs/instrumenting/exposition_formats/). Metrics are created once and live
// as long as the registry; updating one is an atomic operation and may happen on any thread. A
// metric that was created is exposed at 0 before it is first touched.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lagoon {

using Labels = std::vector<std::pair<std::string, std::string>>;

class Counter {
 public:
  void add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

class Histogram {
 public:
  // Upper bounds in ascending order; the bucket +Inf is implied.
  explicit Histogram(std::vector<double> bounds);
  void observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  // Observations in bucket i alone (not cumulated); bucket bounds().size() is +Inf.
  uint64_t bucket(size_t i) const { return counts_[i].load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::vector<double> bounds_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<double> sum_{0};
};

// Number and sum of what was observed, without a distribution.
class Summary {
 public:
  void observe(double value) {
    count_.fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> count_{0};
  std::atomic<double> sum_{0};
};

// What a metric is when somebody asks: called by render(), on its thread.
using MetricSource = std::function<double()>;

class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  // `name` as exposed (counters end in _total). Calls with one name share its help text and type
  // and differ in labels; the same name and labels give the same metric again.
  Counter& counter(std::string_view name, std::string_view help, Labels labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, Labels labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, std::vector<double> bounds,
                       Labels labels = {});

  Summary& summary(std::string_view name, std::string_view help, Labels labels = {});
  // A counter or a gauge whose value is asked of `source`; once for each name.
  void counter_from(std::string_view name, std::string_view help, MetricSource source);
  void gauge_from(std::string_view name, std::string_view help, MetricSource source);

  // The whole registry as exposition text, families in order of creation.
  std::string render() const;

 private:
  struct Family;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Family>> families_;
};

}  // namespace lagoon
