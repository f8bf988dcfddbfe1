#include "bench/measure.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace lagoon::bench {
namespace {

// Asks all prompts at one time, each on a thread of its own.
Result<std::vector<Answer>> run_round(Subject& subject, const RequestShape& shape,
                                      const std::vector<Prompt>& prompts) {
  std::vector<std::optional<Result<Answer>>> results(prompts.size());
  std::vector<std::thread> threads;
  threads.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = subject.ask(shape, prompts[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Answer> answers;
  for (const auto& result : results) {
    LAGOON_RETURN_IF_ERROR(*result);
    answers.push_back(**result);
  }
  return answers;
}

Result<std::vector<Prompt>> make_prompts(Subject& subject, const Measurement& measurement,
                                         int round) {
  std::vector<Prompt> prompts;
  for (int stream = 0; stream < measurement.streams; ++stream) {
    // The same prompts for every k and for every number of streams, as far as they go.
    const uint64_t seed = measurement.seed + uint64_t{1000} * static_cast<uint64_t>(round) +
                          static_cast<uint64_t>(stream);
    LAGOON_ASSIGN(Prompt prompt, subject.make_prompt(measurement.shape, seed));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Spread over_answers(const std::vector<Answer>& answers, double (*figure)(const Answer&)) {
  std::vector<double> values;
  values.reserve(answers.size());
  for (const Answer& answer : answers) values.push_back(figure(answer));
  return spread(std::move(values));
}

Row make_row(const Measurement& measurement, const std::vector<Answer>& answers,
             std::vector<double> totals) {
  Row row;
  row.measurement = measurement;
  row.prompt_tokens =
      over_answers(answers, [](const Answer& a) { return static_cast<double>(a.prompt_tokens); });
  row.completion_tokens = over_answers(
      answers, [](const Answer& a) { return static_cast<double>(a.completion_tokens); });
  row.decode_rate = over_answers(answers, decode_rate);
  row.first_token = over_answers(answers, seconds_to_first);
  row.prefill_rate = over_answers(answers, prefill_rate);
  row.total_rate = spread(std::move(totals));
  row.steps = step_times(answers);
  row.host_share = host_share(answers);
  return row;
}

}  // namespace

Result<Row> measure(Subject& subject, const Measurement& measurement,
                    const std::function<void(const std::string&)>& progress) {
  CHECK(measurement.streams >= 1 && measurement.repeats >= 1 && measurement.warmup >= 0);
  std::vector<Answer> answers;
  std::vector<double> totals;
  std::optional<Counts> before;
  const int rounds = measurement.warmup + measurement.repeats;
  for (int round = 0; round < rounds; ++round) {
    const bool counted = round >= measurement.warmup;
    progress(fmt::format("{} {} of {}", counted ? "round" : "warm-up",
                         counted ? round - measurement.warmup + 1 : round + 1,
                         counted ? measurement.repeats : measurement.warmup));
    LAGOON_ASSIGN(const std::vector<Prompt> prompts, make_prompts(subject, measurement, round));
    if (round == measurement.warmup) {
      LAGOON_ASSIGN(before, subject.counts());
    }
    LAGOON_ASSIGN(const std::vector<Answer> round_answers,
                  run_round(subject, measurement.shape, prompts));
    if (!counted) continue;
    answers.insert(answers.end(), round_answers.begin(), round_answers.end());
    totals.push_back(total_rate(round_answers));
  }
  Row row = make_row(measurement, answers, std::move(totals));
  LAGOON_ASSIGN(const std::optional<Counts> after, subject.counts());
  if (before && after) {
    const Counts counts = difference(*before, *after);
    row.synthetic = counts.synthetic;
    row.speculation = speculation(counts, measurement.shape.proposals);
    row.experts = experts(counts);
  }
  return row;
}

}  // namespace lagoon::bench
