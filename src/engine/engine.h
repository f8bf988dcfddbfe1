// The engine: requests in, tokens out. One thread of its own drives the model; callers talk to it
// from any thread. Contract (ownership, threads, invariants): README.md beside this file.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/metrics.h"
#include "base/result.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace lagoon::engine {

// Of the tokens that are there already (kernels::LogitRules has the formulas, which are vLLM's).
struct Penalties {
  float repetition = 1;  // prompt and answer; above 0, below 1 encourages
  float presence = 0;    // answer
  float frequency = 0;   // answer
};

struct Request {
  std::string id;
  std::vector<int32_t> prompt;  // at least one token
  kernels::Sampling sampling;
  Penalties penalties;
  // Token, and what its logit gains; finite. Of a token that is there twice the last counts.
  std::vector<std::pair<int32_t, float>> logit_bias;
  int max_tokens = 0;  // at least 1; prompt + max_tokens fit the context
  // For timing at a long context: so many first tokens of the prompt, fewer than it has, count as
  // computed though they are not (Model::take_as_computed). The text then means nothing.
  int computed = 0;
  // At most max_tokens. The first min_tokens tokens are no end-of-sequence or stop token, and their
  // text is not searched for stop strings.
  int min_tokens = 0;
  std::vector<std::string> stop;     // text; cut out of the output
  std::vector<int32_t> stop_tokens;  // in addition to the model's end-of-sequence tokens
  bool ignore_eos = false;
  bool skip_special_tokens = true;  // in the text of events
  int logprobs = -1;         // n >= 0: Piece::logprob, and Piece::top with the n best; -1: none
  int prompt_logprobs = -1;  // n >= 0: Event::prompt_logprobs with the n best; -1: none
  int proposals = -1;        // k for this request; -1: the engine's
};

enum class FinishReason { kStop, kLength, kAborted, kError };

struct Usage {
  int prompt_tokens = 0;
  int completion_tokens =
      0;  // every token drawn that is part of the answer, an end-of-sequence token too
  int cached_tokens = 0;  // of the prompt: their keys and values were there already
  int steps = 0;          // target steps that emitted tokens
  int drafts = 0;         // of these, steps that verified proposals
  int drafted_tokens = 0;
  int accepted_tokens = 0;
};

// Of the model's own distribution, before bias, penalties and temperature; rank 1 is the best.
using TokenLogprob = kernels::TokenLogprob;

// A token and the text it completed ("" where its bytes are held back, or it is special).
struct Piece {
  int32_t token = 0;
  std::string text = {};
  std::optional<TokenLogprob> logprob = {};
  std::vector<TokenLogprob> top = {};  // the best, as many as asked for, by rank
};

// What one step gave a request. The last event of a request has `finished`; none follows it.
struct Event {
  std::vector<Piece> pieces;
  bool finished = false;
  FinishReason reason = FinishReason::kStop;
  std::string
      stop_string;  // kStop: the stop string found, or "" for an end-of-sequence or stop token
  int32_t stop_token = -1;  // kStop: that token
  std::string tail;         // text that was held back and belongs to the answer's end
  std::string error;        // kError: one sentence
  // Once, with the first pieces: an entry for each token of the prompt. That of the first is empty;
  // else it begins with the token itself, the n best follow by rank.
  std::vector<std::vector<TokenLogprob>> prompt_logprobs;
  Usage usage;  // so far
};

// Called on the engine's thread; must not block and must not call the engine.
using EventSink = std::function<void(Event)>;

struct Options {
  int proposals = 0;  // k: proposals per step, 0 = no draft; at most the model's max_proposals
  // Requests that name no k get as many as give the most tokens a second, 0 to `proposals` (which
  // is at least 1), chosen for each step by what steps take and how many proposals stand. Only
  // where Model::draft() and step() take the time that they cost.
  bool adaptive_proposals = false;
  // Prompt + output limit, at most what the checkpoint was made for and the model's pages hold; 0:
  // that much.
  int64_t max_length = 0;
  int max_num_seqs = 0;  // requests that run at a time; 0, or more than it has: the model's slots
  // Rows of a step, at least one for each that runs; 0, or more than it has: the model's max_rows.
  int max_num_batched_tokens = 0;
  int max_waiting = 256;  // requests that wait while others run; submit() beyond: queue full
  // Not empty: how many proposals stand is drawn, whatever the target says, for timing with a draft
  // that does not know the target. Entry i is the probability that proposals 0..i all stand (as
  // vLLM logs acceptance by position), so entries never rise; at least `proposals` of them. The
  // text then is the draft's as far as it stands, and means nothing.
  std::vector<double> synthetic_acceptance = {};
  int prefill_rows = 0;  // most prompt rows of a step; 0: what max_num_batched_tokens leaves
  // Seconds that a step may take longer because of prompt rows while answers are being generated;
  // how many rows that is, is measured as it goes (README.md, "One step").
  double max_prefill_stall = 0.25;
  double log_interval = 0;  // seconds between log lines of throughput, while there is any; 0: none
  // Tests: the time, instead of the steady clock's. Any thread.
  std::function<std::chrono::steady_clock::time_point()> clock = nullptr;
};

// For liveness and load.
struct Progress {
  int running = 0;
  int waiting = 0;
  // Since a step last ended, or since there has been something to do; 0 where there is nothing.
  double seconds_since_progress = 0;
  double kv_usage = 0;       // share of the pages in use
  bool failed = false;       // the model has; nothing is taken any more
  std::string failure = {};  // then: how
};

// Proposals from elsewhere than the model's draft (tests: an oracle, an adversary). Called on the
// engine's thread with the tokens so far (prompt and output, the newest not computed yet); returns
// at most k tokens of the vocabulary.
using Proposer = std::function<std::vector<int32_t>(const std::vector<int32_t>& tokens, int k)>;

class Engine {
 public:
  // `tokenizer` and `metrics` outlive the engine. The engine's counters are registered, at 0, here.
  // The options must fit the model (see Options); who takes them from a user checks them first.
  static std::unique_ptr<Engine> start(std::unique_ptr<model::Model> model,
                                       const text::Tokenizer& tokenizer, MetricsRegistry& metrics,
                                       const std::string& model_name, const Options& options,
                                       Proposer proposer = nullptr);
  virtual ~Engine() = default;  // cancels what is running and joins the thread

  // Queues a request; events come to `sink`, unless an error is returned. Errors: kInvalidArgument
  // (prompt empty, an id outside the vocabulary, max_tokens below 1, too long for the context,
  // a parameter out of range), kResourceExhausted (queue full), kUnavailable (after shutdown(), or
  // after the model has failed).
  virtual Result<uint64_t> submit(Request request, EventSink sink) = 0;
  // Stops a request within a step (a finished or unknown one: nothing happens). Its sink gets a
  // last event with kAborted.
  virtual void cancel(uint64_t request) = 0;
  // Stops all requests and refuses new ones. When it returns, every sink has had its last event and
  // none is called any more. The destructor does it too.
  virtual void shutdown() {}

  // Any thread, at any time: never waits for a step.
  virtual Progress progress() const { return {}; }

  virtual int64_t max_length() const = 0;
  virtual const model::ModelInfo& model_info() const = 0;
};

}  // namespace lagoon::engine
