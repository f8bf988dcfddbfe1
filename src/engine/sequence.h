// A request inside the engine: its tokens, its place in the cache, its text. It knows when the
// answer ends; nothing here knows of steps, rows or the model. Not thread-safe: the engine's
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/adaptive_proposals.h"
#include "engine/engine.h"
#include "engine/kv_cache.h"
#include "engine/mailbox.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace lagoon::engine {

class Sequence {
 public:
  // It waits. `tokenizer` and `eos` outlive the sequence.
  Sequence(Job job, const text::Tokenizer& tokenizer, std::span<const int32_t> eos);

  // Runs in the slot from now on; its rows are computed from position 0, or from
  // Request::computed.
  void start(int slot, Clock::time_point now);
  // Waits again, with all its tokens. The caller takes slot and pages back.
  void preempt();

  const Job& job() const { return job_; }
  const Request& request() const { return job_.request; }  // but for its prompt: see tokens()
  int slot() const { return slot_; }
  PageTable& pages() { return pages_; }

  // Prompt and answer.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int prompt_tokens() const { return usage_.prompt_tokens; }
  int committed() const { return committed_; }
  bool answering() const { return usage_.completion_tokens > 0; }
  // Tokens the answer may still get.
  int remaining() const { return request().max_tokens - usage_.completion_tokens; }

  // Known rows are to be computed before a token can be drawn: those of the prompt, and after a
  // preemption those of the answer too, all but the newest. Outside of prefill,
  // committed() == tokens().size() - 1.
  bool in_prefill() const { return committed_ < prefill_end(); }
  int prefill_end() const {
    return answering() ? static_cast<int>(tokens_.size()) - 1 : prompt_tokens();
  }
  // How many of them have the class of the next one (docs/design.md, "The same text").
  int prefill_rows() const;
  bool in_prompt() const { return committed_ < prompt_tokens(); }
  // The next `rows` of them have been computed; the result is how many rows of the prompt that is,
  // those not counted that had been computed before.
  int commit_prefill(int rows);

  // Whether log-probabilities of prompt tokens are still wanted; they are kept until the first
  // event. `position` is that of the token.
  bool scores_prompt() const { return request().prompt_logprobs >= 0 && !answering(); }
  void add_prompt_logprobs(int position, std::vector<TokenLogprob> entries);

  // Where the engine chooses how many proposals it gets.
  Drafting& drafting() { return drafting_; }
  const Drafting& drafting() const { return drafting_; }

  // What the next token's logits go through; null: nothing. Valid until the next call of append().
  const kernels::LogitRules* rules() const { return has_rules_ ? &rules_ : nullptr; }

  // What one step drew for the answer.
  struct Drawn {
    std::span<const int32_t> tokens;  // at least one; the first `accepted` were proposals
    int proposed = 0;
    int accepted = 0;
    // Of each token, where the request wants them: its own, then the best.
    std::span<const std::vector<TokenLogprob>> logprobs = {};
  };
  // Adds the tokens to the answer up to the one that ends it; those after it never were. Commits
  // accordingly. Returns the event to send.
  Event append(const Drawn& drawn);

  // The last event of a sequence that is stopped from outside: kAborted, or kError with a sentence.
  Event abort(FinishReason reason = FinishReason::kAborted, const std::string& error = "");

  // Whether the last event has been given out.
  bool ended() const { return ended_; }
  const Usage& usage() const { return usage_; }

  // For the metrics.
  struct Times {
    bool started = false;
    Clock::time_point start;         // it first began to run
    Clock::time_point first_token;   // of the answer
    Clock::time_point newest_token;  // of the answer
  };
  const Times& times() const { return times_; }
  void set_newest_token_at(Clock::time_point when);

 private:
  void make_rules(std::span<const int32_t> eos);
  void count_seen(int32_t token, bool output);
  // Adds one token; true if it ends the answer, and then `event` says how.
  bool append_token(int32_t token, Event& event);
  bool is_end(int32_t token) const;
  void flush_text(Event& event);

  Job job_;
  int slot_ = -1;
  PageTable pages_;
  std::span<const int32_t> eos_;
  std::vector<int32_t> tokens_;
  int committed_ = 0;
  int prompt_computed_ = 0;  // rows of the prompt that have been computed once
  std::vector<std::vector<TokenLogprob>> prompt_logprobs_;
  text::Detokenizer detokenizer_;
  text::StopMatcher stops_;
  Usage usage_;
  Drafting drafting_;
  bool ended_ = false;
  Times times_;
  // What rules_ points to.
  bool has_rules_ = false;
  kernels::LogitRules rules_;
  std::vector<kernels::LogitBias> bias_;
  std::vector<int32_t> banned_;
  std::vector<kernels::SeenToken> seen_;
  std::unordered_map<int32_t, size_t> seen_at_;  // index in seen_
};

}  // namespace lagoon::engine
