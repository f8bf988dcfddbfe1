#include "base/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/check.h"

namespace lagoon {
namespace {

enum class MetricType { kCounter, kGauge, kHistogram, kSummary };

const char* type_name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
    case MetricType::kSummary:
      return "summary";
  }
  return "untyped";
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// [a-zA-Z_:][a-zA-Z0-9_:]*; label names are the same without the colon.
bool is_name(std::string_view name, bool colon_allowed) {
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool digit = c >= '0' && c <= '9';
    if (is_letter(c) || c == '_' || (c == ':' && colon_allowed) || (digit && i > 0)) continue;
    return false;
  }
  return !name.empty();
}

// Help texts escape backslash and newline; label values the quote too.
std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

// The shortest text that reads back as `value`; a whole number has no decimal point.
std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  constexpr double kExactIntegers = 9007199254740992.0;  // 2^53
  if (value == std::trunc(value) && std::fabs(value) < kExactIntegers) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

// {a="x",b="y"}, with `le` after the others where there is one; "" without labels.
std::string label_text(const Labels& labels, const std::string* le = nullptr) {
  std::string out;
  for (const auto& [name, value] : labels) {
    out += fmt::format("{}{}=\"{}\"", out.empty() ? "" : ",", name, escaped(value, true));
  }
  if (le != nullptr) out += fmt::format("{}le=\"{}\"", out.empty() ? "" : ",", *le);
  return out.empty() ? out : "{" + out + "}";
}

void append_histogram(std::string& out, const std::string& name, const Labels& labels,
                      const Histogram& histogram) {
  const std::vector<double>& bounds = histogram.bounds();
  uint64_t count = 0;
  for (size_t i = 0; i <= bounds.size(); ++i) {
    count += histogram.bucket(i);
    const std::string le =
        number(i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity());
    out += fmt::format("{}_bucket{} {}\n", name, label_text(labels, &le), count);
  }
  // The count is the one just summed up, so that it equals the +Inf bucket whatever is observed
  // meanwhile.
  out += fmt::format("{}_sum{} {}\n", name, label_text(labels), number(histogram.sum()));
  out += fmt::format("{}_count{} {}\n", name, label_text(labels), count);
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)),
      counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds_.size() + 1)) {
  CHECK(std::adjacent_find(bounds_.begin(), bounds_.end(), std::greater_equal<>()) ==
        bounds_.end());
  CHECK(std::all_of(bounds_.begin(), bounds_.end(), [](double b) { return std::isfinite(b); }));
}

void Histogram::observe(double value) {
  // A bucket holds what is at most its bound; what compares with nothing (NaN) falls into +Inf.
  const auto bound =
      std::isnan(value) ? bounds_.end() : std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[std::distance(bounds_.begin(), bound)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

// One name with its help, and a metric for each set of labels. Only the vector of the family's own
// type has elements.
struct MetricsRegistry::Family {
  template <typename Metric>
  struct Labelled {
    Labels labels;
    std::unique_ptr<Metric> metric;
  };

  std::string name;
  std::string help;
  MetricType type = MetricType::kGauge;
  std::vector<Labelled<Counter>> counters;
  std::vector<Labelled<Gauge>> gauges;
  std::vector<Labelled<Histogram>> histograms;
  std::vector<Labelled<Summary>> summaries;
  MetricSource source;  // of a family without labels

  // The family `name`, made on first use. The caller holds the registry's mutex.
  static Family& of(std::vector<std::unique_ptr<Family>>& families, std::string_view name,
                    std::string_view help, MetricType type) {
    CHECK(is_name(name, true));
    for (const std::unique_ptr<Family>& family : families) {
      if (family->name != name) continue;
      CHECK(family->type == type);
      return *family;
    }
    families.push_back(std::make_unique<Family>());
    Family& made = *families.back();
    made.name = name;
    made.help = help;
    made.type = type;
    return made;
  }

  template <typename Metric, typename Make>
  static Metric& find_or_make(std::vector<Labelled<Metric>>& metrics, Labels labels, Make make) {
    for (const auto& [name, value] : labels) CHECK(is_name(name, false) && name != "le");
    for (Labelled<Metric>& candidate : metrics) {
      if (candidate.labels == labels) return *candidate.metric;
    }
    metrics.push_back({std::move(labels), make()});
    return *metrics.back().metric;
  }
};

MetricsRegistry::MetricsRegistry() = default;
MetricsRegistry::~MetricsRegistry() = default;

Counter& MetricsRegistry::counter(std::string_view name, std::string_view help, Labels labels) {
  CHECK(name.ends_with("_total"));
  const std::lock_guard lock(mutex_);
  Family& family = Family::of(families_, name, help, MetricType::kCounter);
  return Family::find_or_make(family.counters, std::move(labels),
                              [] { return std::make_unique<Counter>(); });
}

Gauge& MetricsRegistry::gauge(std::string_view name, std::string_view help, Labels labels) {
  const std::lock_guard lock(mutex_);
  Family& family = Family::of(families_, name, help, MetricType::kGauge);
  return Family::find_or_make(family.gauges, std::move(labels),
                              [] { return std::make_unique<Gauge>(); });
}

Histogram& MetricsRegistry::histogram(std::string_view name, std::string_view help,
                                      std::vector<double> bounds, Labels labels) {
  const std::lock_guard lock(mutex_);
  Family& family = Family::of(families_, name, help, MetricType::kHistogram);
  if (!family.histograms.empty()) CHECK(family.histograms.front().metric->bounds() == bounds);
  return Family::find_or_make(family.histograms, std::move(labels),
                              [&bounds] { return std::make_unique<Histogram>(std::move(bounds)); });
}

Summary& MetricsRegistry::summary(std::string_view name, std::string_view help, Labels labels) {
  const std::lock_guard lock(mutex_);
  Family& family = Family::of(families_, name, help, MetricType::kSummary);
  return Family::find_or_make(family.summaries, std::move(labels),
                              [] { return std::make_unique<Summary>(); });
}

void MetricsRegistry::counter_from(std::string_view name, std::string_view help,
                                   MetricSource source) {
  CHECK(name.ends_with("_total"));
  const std::lock_guard lock(mutex_);
  Family::of(families_, name, help, MetricType::kCounter).source = std::move(source);
}

void MetricsRegistry::gauge_from(std::string_view name, std::string_view help,
                                 MetricSource source) {
  const std::lock_guard lock(mutex_);
  Family::of(families_, name, help, MetricType::kGauge).source = std::move(source);
}

std::string MetricsRegistry::render() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const std::unique_ptr<Family>& family : families_) {
    out += fmt::format("# HELP {} {}\n", family->name, escaped(family->help, false));
    out += fmt::format("# TYPE {} {}\n", family->name, type_name(family->type));
    for (const auto& [labels, counter] : family->counters) {
      out += fmt::format("{}{} {}\n", family->name, label_text(labels), counter->value());
    }
    for (const auto& [labels, gauge] : family->gauges) {
      out += fmt::format("{}{} {}\n", family->name, label_text(labels), number(gauge->value()));
    }
    for (const auto& [labels, histogram] : family->histograms) {
      append_histogram(out, family->name, labels, *histogram);
    }
    for (const auto& [labels, summary] : family->summaries) {
      const std::string text = label_text(labels);
      out += fmt::format("{}_sum{} {}\n", family->name, text, number(summary->sum()));
      out += fmt::format("{}_count{} {}\n", family->name, text, summary->count());
    }
    if (family->source) out += fmt::format("{} {}\n", family->name, number(family->source()));
  }
  return out;
}

}  // namespace lagoon
