// What is measured: a model in this process or a server.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/counts.h"

namespace lagoon::bench {

using Clock = std::chrono::steady_clock;

// Values of k that are no numbers: what the subject does when it is not told, and what a model in
// this process chooses as it goes.
inline constexpr int kAsSetUp = -1;
inline constexpr int kAdaptive = -2;

// What every request of a measurement has in common.
struct RequestShape {
  int input_length = 0;      // tokens; a server may count a few more or fewer
  int output_length = 0;     // tokens
  int proposals = kAsSetUp;  // k
  double temperature = 0;
  bool chat = false;
  bool stop_at_eos = false;
  bool random_context = false;  // the prompt counts as computed, but for its last token
};

struct Prompt {
  std::vector<int32_t> tokens;  // for a model in this process
  std::string text;             // for a server
  uint64_t seed = 0;            // of sampling
};

// One answer. Times are those at which its tokens became known to the client.
struct Answer {
  int prompt_tokens = 0;
  int completion_tokens = 0;
  Clock::time_point sent;
  Clock::time_point first;  // token
  Clock::time_point last;
  // Seconds from the first token to the last that the engine waited for a device; empty: unknown.
  std::optional<double> waited = {};
  std::vector<Clock::time_point> steps = {};  // each that gave it tokens; empty: not known
};

class Subject {
 public:
  virtual ~Subject() = default;
  // A prompt of its own for each seed. One thread at a time.
  virtual Result<Prompt> make_prompt(const RequestShape& shape, uint64_t seed) = 0;
  // Sends a request and waits for its end. Several threads at a time.
  virtual Result<Answer> ask(const RequestShape& shape, const Prompt& prompt) = 0;
  // Nothing where the subject does not count.
  virtual Result<std::optional<Counts>> counts() = 0;
};

}  // namespace lagoon::bench
