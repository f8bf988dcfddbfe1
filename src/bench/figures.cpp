#include "bench/figures.h"

#include <algorithm>

#include "base/check.h"

namespace lagoon::bench {
namespace {

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

double over(double amount, double time) {
  return amount > 0 && time > 0 ? amount / time : 0;
}

}  // namespace

Spread spread(std::vector<double> values) {
  CHECK(!values.empty());
  Spread spread;
  spread.values = values;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  spread.median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  spread.least = values.front();
  spread.most = values.back();
  return spread;
}

double decode_rate(const Answer& answer) {
  return over(answer.completion_tokens - 1, seconds(answer.last - answer.first));
}

double total_rate(std::span<const Answer> answers) {
  CHECK(!answers.empty());
  double tokens = 0;
  Clock::time_point first = answers.front().first;
  Clock::time_point last = answers.front().last;
  for (const Answer& answer : answers) {
    tokens += answer.completion_tokens - 1;
    first = std::min(first, answer.first);
    last = std::max(last, answer.last);
  }
  return over(tokens, seconds(last - first));
}

double seconds_to_first(const Answer& answer) {
  return seconds(answer.first - answer.sent);
}

double prefill_rate(const Answer& answer) {
  return over(answer.prompt_tokens, seconds_to_first(answer));
}

std::optional<StepTimes> step_times(std::span<const Answer> answers) {
  std::vector<double> times;
  for (const Answer& answer : answers) {
    for (size_t i = 1; i < answer.steps.size(); ++i) {
      times.push_back(seconds(answer.steps[i] - answer.steps[i - 1]));
    }
  }
  if (times.empty()) return std::nullopt;
  StepTimes made{.seconds = {}, .count = times.size()};
  made.seconds = spread(std::move(times));
  made.seconds.values.clear();
  return made;
}

std::optional<double> host_share(std::span<const Answer> answers) {
  double time = 0;
  double waited = 0;
  for (const Answer& answer : answers) {
    if (!answer.waited) continue;
    time += seconds(answer.last - answer.first);
    waited += *answer.waited;
  }
  if (time <= 0) return std::nullopt;
  return 1 - waited / time;
}

std::optional<Speculation> speculation(const Counts& counts, int proposals) {
  if (!counts.speculation || !(counts.drafts > 0) || !(counts.drafted > 0)) return std::nullopt;
  Speculation speculation;
  speculation.acceptance = counts.accepted / counts.drafted;
  speculation.accepted_per_step = counts.accepted / counts.drafts;
  speculation.tokens_per_step = 1 + speculation.accepted_per_step;
  for (const double accepted : counts.accepted_at) {
    speculation.by_position.push_back(accepted / counts.drafts);
  }
  if (proposals >= 0 && speculation.by_position.size() > static_cast<size_t>(proposals)) {
    speculation.by_position.resize(static_cast<size_t>(proposals));
  }
  return speculation;
}

std::optional<Experts> experts(const Counts& counts) {
  if (!(counts.expert_layers > 0)) return std::nullopt;
  return Experts{.distinct = counts.experts_read / counts.expert_layers,
                 .rows = counts.expert_rows / counts.expert_layers};
}

}  // namespace lagoon::bench
