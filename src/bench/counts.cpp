#include "bench/counts.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace lagoon::bench {
namespace {

constexpr size_t kMostPositions = 4096;

struct Sample {
  std::string_view name;
  std::string_view labels;  // between the braces
  double value = 0;
};

std::optional<Sample> parse_line(std::string_view line) {
  if (line.empty() || line.front() == '#') return std::nullopt;
  Sample sample;
  const size_t name_end = std::min(line.find_first_of("{ "), line.size());
  sample.name = line.substr(0, name_end);
  std::string_view rest = line.substr(name_end);
  if (rest.starts_with('{')) {
    const size_t end = rest.rfind('}');
    if (end == std::string_view::npos) return std::nullopt;
    sample.labels = rest.substr(1, end - 1);
    rest.remove_prefix(end + 1);
  }
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), sample.value);
  if (error != std::errc() || !std::isfinite(sample.value)) return std::nullopt;
  return sample;
}

// The value of a label without escapes, such as position="3"; "" where it is not there.
std::string_view label(std::string_view labels, std::string_view name) {
  for (size_t at = labels.find(name); at != std::string_view::npos;
       at = labels.find(name, at + 1)) {
    const std::string_view rest = labels.substr(at + name.size());
    if ((at > 0 && labels[at - 1] != ',') || !rest.starts_with("=\"")) continue;
    return rest.substr(2, rest.find('"', 2) - 2);
  }
  return {};
}

void add_position(const Sample& sample, Counts& counts) {
  const std::string_view text = label(sample.labels, "position");
  size_t position = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), position);
  if (error != std::errc() || position >= kMostPositions) return;
  counts.accepted_at.resize(std::max(counts.accepted_at.size(), position + 1));
  counts.accepted_at[position] += sample.value;
}

void add(const Sample& sample, Counts& counts) {
  struct Field {
    std::string_view name;
    double Counts::* value;
  };
  constexpr Field kFields[] = {
      {"vllm:spec_decode_num_drafts_total", &Counts::drafts},
      {"vllm:spec_decode_num_draft_tokens_total", &Counts::drafted},
      {"vllm:spec_decode_num_accepted_tokens_total", &Counts::accepted},
      {"lagoon:decode_layers_total", &Counts::expert_layers},
      {"lagoon:decode_layer_rows_total", &Counts::expert_rows},
      {"lagoon:decode_experts_total", &Counts::experts_read},
  };
  for (const Field& field : kFields) {
    if (sample.name == field.name) counts.*field.value += sample.value;
  }
  if (sample.name == "vllm:spec_decode_num_drafts_total") {
    counts.speculation = true;
    counts.synthetic = counts.synthetic || label(sample.labels, "acceptance") == "synthetic";
  }
  if (sample.name == "vllm:spec_decode_num_accepted_tokens_per_pos_total") {
    add_position(sample, counts);
  }
}

}  // namespace

Counts parse_counts(std::string_view metrics) {
  Counts counts;
  while (!metrics.empty()) {
    const size_t end = std::min(metrics.find('\n'), metrics.size());
    if (const auto sample = parse_line(metrics.substr(0, end))) add(*sample, counts);
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
  }
  return counts;
}

Counts difference(const Counts& before, const Counts& after) {
  Counts counts = after;
  counts.drafts -= before.drafts;
  counts.drafted -= before.drafted;
  counts.accepted -= before.accepted;
  for (size_t i = 0; i < before.accepted_at.size() && i < counts.accepted_at.size(); ++i) {
    counts.accepted_at[i] -= before.accepted_at[i];
  }
  counts.expert_layers -= before.expert_layers;
  counts.expert_rows -= before.expert_rows;
  counts.experts_read -= before.experts_read;
  return counts;
}

}  // namespace lagoon::bench
